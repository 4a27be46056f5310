"""The tokens of the simulated model: special ones, one for each byte, and some words. A text becomes tokens and
back without loss, and an emoji is four tokens, as it is for many real models.
"""

import re
from collections.abc import Mapping, Sequence

EOS = 0
ROLES = {"system": 1, "user": 2, "assistant": 3, "tool": 4}
SPECIAL = [b"<|end|>", b"<|system|>", b"<|user|>", b"<|assistant|>", b"<|tool|>"]
BYTE = len(SPECIAL)  # the token of byte 0
WORD = BYTE + 256  # the token of the first word

_PROSE_WORDS = (
    "the ship and its crew kept on through night while long swell carried them past islands harbours "
    "lanterns ropes anchors captain pilot cook gull whale storm calm tide moon star north south east "
    "west wind rain fog salt water wood iron brass canvas chart compass bell watch song story letter "
    "bread tea soup map log page ink dawn noon dusk midnight hour day week slow quick bright dark cold "
    "warm old new far near deep wide high low quiet loud steady lost found sailed waited turned called "
    "answered counted mended wrote read slept woke again before after under over between beyond until "
    "because though never always often once café naïve über señor façade jalapeño smörgåsbord 東京 москва"
)
TEXT = [*(f" {word}" for word in _PROSE_WORDS.split()), ".", ",", " -", "\n", " The", " A", " But", " So"]
WORD_IDS = {text: WORD + index for index, text in enumerate(TEXT)}
_PIECES = re.compile(r" ?[^\W\d_]+|.", re.DOTALL)


def encode_text(text: str) -> list[int]:
    ids: list[int] = []
    for piece in _PIECES.findall(text):
        word = WORD_IDS.get(piece)
        if word is None:
            ids += [BYTE + byte for byte in piece.encode("utf-8", "replace")]
        else:
            ids.append(word)
    return ids


def count_messages(messages: Sequence[Mapping[str, str]]) -> int:
    """How many ids `encode_messages` gives, without making a list of a million things: that would keep the
    interpreter to itself. Raises as it does.
    """
    around = [(ROLES[message["role"]], EOS) for message in messages]
    return sum(map(len, around)) + sum(_count_text(message["content"]) for message in messages) + 1


def _count_text(text: str) -> int:
    pieces = (found[0] for found in _PIECES.finditer(text))
    return sum(1 if piece in WORD_IDS else len(piece.encode("utf-8", "replace")) for piece in pieces)


def encode_messages(messages: Sequence[Mapping[str, str]]) -> list[int]:
    """Raises `KeyError` for a role that the template lacks."""
    ids: list[int] = []
    for message in messages:
        ids += [ROLES[message["role"]], *encode_text(message["content"]), EOS]
    return [*ids, ROLES["assistant"]]
