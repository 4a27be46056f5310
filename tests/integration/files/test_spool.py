"""Contents on their way in."""

import os
import time

from app.files import spool
from app.files.spool import Spool
from config.settings import settings


def test_what_a_killed_process_left_goes_and_what_is_being_written_stays(monkeypatch, tmp_path):
    monkeypatch.setattr(spool, "settings", lambda: settings().model_copy(update={"var_dir": tmp_path}))
    spool.drop_leftovers()
    with Spool(100) as written, Spool(100) as left:
        long_ago = time.time() - settings().blob_grace_seconds - 1
        os.utime(left.path, (long_ago, long_ago))
        spool.drop_leftovers()
        assert written.path.exists()
        assert not left.path.exists()
