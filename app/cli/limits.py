"""Limits as they are typed and shown: a number, 0 for no limit, or `default` for what the installation says."""

import typer

DEFAULT = -1


def amount(text: str) -> int:
    """Raises `typer.BadParameter`."""
    if text == "default":
        return DEFAULT
    if not text.isdecimal() or int(text) >= 2**31:
        raise typer.BadParameter("a number, 0 for no limit, or 'default'")
    return int(text)


def stored(value: int) -> int | None:
    return None if value == DEFAULT else value


def shown(own: int | None, usual: int) -> str:
    """What holds; in brackets where it is the installation's."""
    value = usual if own is None else own
    text = f"{value:,}" if value else "none"
    return f"({text})" if own is None else text
