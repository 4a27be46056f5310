"""The simulated engine's language. `Writer` says which token follows which; it knows nothing of calls, time or
slots. What the tokens are is `app.tokens.simulated`'s.
"""

from collections.abc import Sequence

from app.tokens.simulated import BYTE, EOS, SPECIAL, TEXT, WORD_IDS
from workers.engine.decoding import Vocabulary

VOCABULARY = Vocabulary(
    [*SPECIAL, *(bytes([byte]) for byte in range(256)), *(text.encode() for text in TEXT)],
    frozenset(range(BYTE)),
)

# An emoji is F0 9F 98 and a last byte, which must not be one of those: the byte before says what follows.
_EMOJI = BYTE + 0xF0
_FOLLOWERS = {
    _EMOJI: [BYTE + 0x9F],
    BYTE + 0x9F: [BYTE + 0x98],
    BYTE + 0x98: [BYTE + last for last in range(0x80, 0xC0) if last not in {0x98, 0x9F}],
}
_PROSE = [*WORD_IDS.values(), *WORD_IDS.values(), _EMOJI, *(WORD_IDS[stop] for stop in ".,.,.,.,")]
_EMOTIONAL = [*_PROSE, *[_EMOJI] * len(_PROSE)]

_MULTIPLIER = 6364136223846793005
_MASK = 2**64 - 1


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
