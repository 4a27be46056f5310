"""What a URL must be before anything is promised to be sent to it. It asks the name service, so no transaction
is open meanwhile.
"""

from typing import Final

from app.webhooks import guard
from app.webhooks.errors import UrlRefused

MAX_URL_BYTES: Final = 2048  # an index holds no more


def require_callback(url: str, param: str) -> None:
    """Raises `UrlRefused`, naming `param`. The same holds again at every attempt."""
    if len(url.encode(errors="replace")) > MAX_URL_BYTES:
        raise UrlRefused(param, f"'{param}' is longer than a URL may be: {MAX_URL_BYTES} bytes.")
    guard.require_allowed(url, param)
