from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.stack import Stack, running


@pytest.fixture
def stack(clean: dict[str, str], make_key: Callable[..., str], tmp_path: Path) -> Iterator[Stack]:
    """Web, dispatcher and background run; the test starts workers."""
    with running(clean, make_key(), tmp_path) as started:
        started.start("background")
        started.start("dispatcher")
        started.start_web()
        yield started
