"""Uploads and downloads of any size, in a web process that does not grow by them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import psutil
import pytest

from tests.integration.api.conftest import running_gunicorn

MEGABYTE = 1 << 20
SIZE = 150 * MEGABYTE
BOUNDARY = "a-boundary-of-a-test"


@pytest.mark.slow
def test_a_large_file_passes_through_in_pieces(services, make_key):
    headers = {"Authorization": f"Bearer {make_key('alice')}"}
    form = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    with (
        running_gunicorn(services) as (server, pid),
        httpx.Client(base_url=f"http://{server}/v1", headers=headers, trust_env=False, timeout=60) as client,
    ):
        client.get("/files")
        idle = _memory(pid)
        with _watching(pid) as peak:
            file = client.post("/files", content=_form(), headers=form).json()
            with client.stream("GET", f"/files/{file['id']}/content") as answer:
                received = sum(len(chunk) for chunk in answer.iter_raw())
    assert file["bytes"] == received == SIZE
    assert peak[0] - idle < 50 * MEGABYTE


def _form() -> Iterator[bytes]:
    yield f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'.encode()
    yield f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="big"\r\n\r\n'.encode()
    for number in range(SIZE // MEGABYTE):
        yield number.to_bytes(1) * MEGABYTE
    yield f"\r\n--{BOUNDARY}--\r\n".encode()


@contextmanager
def _watching(pid: int) -> Iterator[list[int]]:
    peak, is_over = [0], threading.Event()

    def watch() -> None:
        while not is_over.wait(0.02):
            peak[0] = max(peak[0], _memory(pid))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        is_over.set()
        thread.join()


def _memory(pid: int) -> int:
    master = psutil.Process(pid)
    return sum(process.memory_info().rss for process in [master, *master.children(recursive=True)])
