"""Text that came from elsewhere (a model, a client's metadata), made safe for a terminal. Pure."""

from typing import Final

_CONTROLS: Final = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}


def harmless(text: str) -> str:
    """`text` with its control characters as visible signs, one for one: none may move a cursor, set a title or
    answer for the user.
    """
    return text.translate(_CONTROLS)
