"""The API as the commands see it: where it is, with which key, and its refusals as plain sentences. It must not
know the database.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import urlsplit

import httpx
import orjson
from websockets.sync.client import connect as connect_socket
from websockets.sync.connection import Connection

from app.cli.errors import CommandFailed, Unreachable
from config.settings import settings

TIMEOUT_SECONDS: Final = 30.0
OPEN_SECONDS: Final = 10.0
MAX_FRAME_BYTES: Final = 64 * 2**20
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


class Api:
    """One Longhaul. Every call raises `CommandFailed`, or `Unreachable`."""

    def __init__(self, url: str, key: str) -> None:
        if not (key.isascii() and key.isprintable()):
            raise CommandFailed("The API key holds characters that no key has.")
        self.url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        # A proxy that the environment names is no way to this machine itself.
        self._by_proxy = _host(url) not in LOOPBACK
        self._http = httpx.Client(
            headers=self._headers, timeout=TIMEOUT_SECONDS, trust_env=self._by_proxy, follow_redirects=True
        )

    def call(
        self,
        method: str,
        path: str,
        *,
        body: dict[str, Any] | None = None,
        params: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        """The answer's JSON object."""
        with self._plainly():
            answer = self._http.request(method, self.url + path, json=body, params=params, headers=headers)
        return self._object(answer)

    def upload(self, file: IO[bytes], name: str, **fields: str) -> dict[str, Any]:
        """Store a file; returns what the API says of it. It is read as it is sent."""
        with self._plainly():
            answer = self._http.post(f"{self.url}/v1/files", data=fields, files={"file": (name, file)})
        return self._object(answer)

    def download(self, path: str) -> Iterator[bytes]:
        """An answer of any size, as it comes."""
        with self._plainly(), self._http.stream("GET", self.url + path) as answer:
            if not answer.is_success:
                raise self.refusal(answer.status_code, answer.read())
            yield from answer.iter_bytes()

    def _object(self, answer: httpx.Response) -> dict[str, Any]:
        if not answer.is_success:
            raise self.refusal(answer.status_code, answer.content)
        found = _json_object(answer.content)
        if found is None:
            raise CommandFailed(f"What answers at {self.url} is not Longhaul.")
        return found

    @contextmanager
    def _plainly(self) -> Iterator[None]:
        """What goes wrong with a request, as a sentence."""
        try:
            yield
        except httpx.ConnectError:
            raise Unreachable(
                f"No Longhaul answers at {self.url}. Start one with `longhaul up`, "
                "or name another with --url or LONGHAUL_URL."
            ) from None
        except httpx.TimeoutException:
            raise Unreachable(f"{self.url} did not answer within {TIMEOUT_SECONDS:.0f} s.") from None
        except (httpx.UnsupportedProtocol, httpx.InvalidURL):
            raise CommandFailed(f"{self.url} is not an address that begins with http:// or https://.") from None
        except httpx.HTTPError as error:
            raise Unreachable(f"The connection to {self.url} broke: {error}.") from None
        except UnicodeEncodeError:
            raise CommandFailed("An idempotency key is of ASCII characters.") from None

    def job(self, job_id: str) -> dict[str, Any]:
        return self.call("GET", job_path(job_id))

    def stream(self, path: str, after: int) -> AbstractContextManager[Connection]:
        """A WebSocket with the events after `after` of a job or batch. Raises what `websockets` raises."""
        scheme, _, rest = self.url.partition("://")
        return connect_socket(
            f"{'wss' if scheme == 'https' else 'ws'}://{rest}{path}/stream?after={after}",
            additional_headers=self._headers,
            compression=None,
            open_timeout=OPEN_SECONDS,
            close_timeout=1,
            max_size=MAX_FRAME_BYTES,
            proxy=True if self._by_proxy else None,
        )

    def refusal(self, status: int, content: bytes | bytearray) -> CommandFailed:
        """An answer that is not a success, as an error to raise."""
        if status == httpx.codes.UNAUTHORIZED:
            problem = "refuses this API key" if self._headers else "wants an API key"
            return CommandFailed(
                f"{self.url} {problem}. Give one with --key or LONGHAUL_API_KEY; "
                "`longhaul keys create NAME` makes one."
            )
        error = (_json_object(content) or {}).get("error")
        if isinstance(error, dict) and error.get("message"):
            return CommandFailed(str(error["message"]))
        return CommandFailed(f"{self.url} answers with status {status}, in a way that Longhaul does not.")


def job_path(job_id: str) -> str:
    return f"/v1/jobs/{_safe(job_id, 'job')}"


def batch_path(batch_id: str) -> str:
    return f"/v1/batches/{_safe(batch_id, 'batch')}"


def _safe(public_id: str, kind: str) -> str:
    """Raises `CommandFailed` for what cannot be an id, so that nothing else is ever asked for."""
    if not public_id.isascii() or not public_id.replace("_", "").isalnum():
        raise CommandFailed(f"No {kind} with id {public_id!r}.")
    return public_id


def connect(url: str | None, key: str | None) -> Api:
    """The API that the options name, else the settings, else what `longhaul up` left on this machine."""
    address = url or settings().base_url
    return Api(address, key or settings().api_key or _local_key(address, settings().var_dir / "run"))


def _local_key(address: str, run_dir: Path) -> str:
    """The key of the local account, which must not be shown to other machines."""
    if _host(address) not in {*LOOPBACK, settings().host}:
        return ""
    try:
        return (run_dir / "local-key").read_text().strip()
    except OSError:
        return ""


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        raise CommandFailed(f"{url} is not an address.") from None


def _json_object(content: bytes | bytearray) -> dict[str, Any] | None:
    try:
        found = orjson.loads(content)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
