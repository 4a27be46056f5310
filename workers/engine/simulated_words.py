"""The simulated engine's language: special tokens, one token for each byte, and some words. A text becomes
tokens and back without loss, and an emoji is four tokens, as it is for many real models. `Writer` says which
token follows which; it knows nothing of calls, time or slots.
"""

import re
from collections.abc import Sequence

from workers.engine import Message
from workers.engine.decoding import Vocabulary

EOS = 0
_ROLES = {"system": 1, "user": 2, "assistant": 3, "tool": 4}
_SPECIAL = [b"<|end|>", b"<|system|>", b"<|user|>", b"<|assistant|>", b"<|tool|>"]
_BYTE = len(_SPECIAL)  # the token of byte 0
_WORD = _BYTE + 256  # the token of the first word

_PROSE_WORDS = (
    "the ship and its crew kept on through night while long swell carried them past islands harbours "
    "lanterns ropes anchors captain pilot cook gull whale storm calm tide moon star north south east "
    "west wind rain fog salt water wood iron brass canvas chart compass bell watch song story letter "
    "bread tea soup map log page ink dawn noon dusk midnight hour day week slow quick bright dark cold "
    "warm old new far near deep wide high low quiet loud steady lost found sailed waited turned called "
    "answered counted mended wrote read slept woke again before after under over between beyond until "
    "because though never always often once café naïve über señor façade jalapeño smörgåsbord 東京 москва"
)
_TEXT = [*(f" {word}" for word in _PROSE_WORDS.split()), ".", ",", " -", "\n", " The", " A", " But", " So"]
_WORD_IDS = {text: _WORD + index for index, text in enumerate(_TEXT)}
_PIECES = re.compile(r" ?[^\W\d_]+|.", re.DOTALL)

VOCABULARY = Vocabulary(
    [*_SPECIAL, *(bytes([byte]) for byte in range(256)), *(text.encode() for text in _TEXT)],
    frozenset(range(_BYTE)),
)

# An emoji is F0 9F 98 and a last byte, which must not be one of those: the byte before says what follows.
_EMOJI = _BYTE + 0xF0
_FOLLOWERS = {
    _EMOJI: [_BYTE + 0x9F],
    _BYTE + 0x9F: [_BYTE + 0x98],
    _BYTE + 0x98: [_BYTE + last for last in range(0x80, 0xC0) if last not in {0x98, 0x9F}],
}
_PROSE = [*_WORD_IDS.values(), *_WORD_IDS.values(), _EMOJI, *(_WORD_IDS[stop] for stop in ".,.,.,.,")]
_EMOTIONAL = [*_PROSE, *[_EMOJI] * len(_PROSE)]

_MULTIPLIER = 6364136223846793005
_MASK = 2**64 - 1


def encode_text(text: str) -> list[int]:
    ids: list[int] = []
    for piece in _PIECES.findall(text):
        word = _WORD_IDS.get(piece)
        if word is None:
            ids += [_BYTE + byte for byte in piece.encode("utf-8", "replace")]
        else:
            ids.append(word)
    return ids


def encode_messages(messages: Sequence[Message]) -> list[int]:
    """Raises `KeyError` for a role that the template lacks."""
    ids: list[int] = []
    for message in messages:
        ids += [_ROLES[message["role"]], *encode_text(message["content"]), EOS]
    return [*ids, _ROLES["assistant"]]


class Writer:
    """Writes one answer: first `script`, then words without end, or an end of sequence at `ends_at`. Each
    token depends on `state`, a 64-bit number that stands for prompt and seed, and on the ids before it.
    """

    __slots__ = ("_ends_at", "_last", "_position", "_prose", "_script", "_state")

    def __init__(
        self, state: int, script: Sequence[int] = (), ends_at: int | None = None, *, emoji: bool = False
    ) -> None:
        self._state = state
        self._script = script
        self._ends_at = ends_at
        self._prose = _EMOTIONAL if emoji else _PROSE
        self._position = 0
        self._last = EOS

    def go_on_after(self, ids: Sequence[int]) -> None:
        for token in ids:
            self._state = (self._state * _MULTIPLIER + token + 1) & _MASK
        self._position += len(ids)
        if ids:
            self._last = ids[-1]

    def next(self) -> int:
        position = self._position
        if position == self._ends_at:
            token = EOS
        elif position < len(self._script):
            token = self._script[position]
        else:
            choices = _FOLLOWERS.get(self._last, self._prose)
            token = choices[(self._state >> 33) % len(choices)]
        self._position = position + 1
        self._state = (self._state * _MULTIPLIER + token + 1) & _MASK
        self._last = token
        return token
