"""The command `python -m workers.embedded NAME`: one server in the foreground, ended by SIGTERM or SIGINT, and
ending when the server does, so that the supervisor starts both again.
"""

import argparse
import signal
import sys
from types import FrameType

from config.settings import settings
from workers.embedded import SERVERS, Server, ServerFailed


class Stopped(BaseException):
    """Somebody asked us to stop."""


def serve(server: Server) -> str | None:
    """The sentence that says why the server ended by itself, or None when it was stopped."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        with server.running(None) as running:
            code = running.wait()
    except Stopped:
        return None
    except (ServerFailed, OSError) as error:
        return str(error)
    return f"The embedded {server.name} server ended by itself with status {code}."


def _stop(_number: int, _frame: FrameType | None) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # stopping is under way and is not to be cut short
    raise Stopped


def main() -> str | None:
    parser = argparse.ArgumentParser(prog="python -m workers.embedded", description=__doc__)
    parser.add_argument("name", choices=SERVERS)
    parser.add_argument("--port", type=int, help="the TCP port on 127.0.0.1 (default: that of last time)")
    arguments = parser.parse_args()
    folder = settings().var_dir / arguments.name
    return serve(SERVERS[arguments.name](folder, arguments.port))


if __name__ == "__main__":
    sys.exit(main())
