"""Token ids to text through bytes: a table gives each token its bytes, and an incremental UTF-8 decoder
joins them. So the text depends on the ids alone, never on where they were cut or on the prompt before
them. It knows the two families of LLM tokenizers, and no engine.
"""

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_PROBE = "Ahoy, wörld! 12 × 3 = 36;\n\tnaïve 東京 🦊 'quoted' {}"


class BytesDecoder:
    """A `Decoder` over a table of bytes by token id."""

    __slots__ = ("_decoder", "_is_inside", "_table", "_whole")

    def __init__(self, table: Sequence[bytes], whole: Sequence[str | None]) -> None:
        self._table = table
        self._whole = whole
        self._is_inside = False  # a character whose first bytes have come
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def step(self, token_id: int) -> str:
        if not self._is_inside and (text := self._whole[token_id]) is not None:
            return text
        text = self._decoder.decode(self._table[token_id])
        self._is_inside = bool(self._decoder.getstate()[0])
        return text

    def flush(self) -> str:
        return self._decoder.decode(b"", True)


@dataclass(frozen=True)
class Vocabulary:
    """The bytes of each token, and which tokens are special: those are no text."""

    pieces: Sequence[bytes]
    special: frozenset[int]
    _text: Sequence[bytes] = field(init=False, repr=False)
    _whole: Sequence[str | None] = field(init=False, repr=False)  # tokens that are whole characters

    def __post_init__(self) -> None:
        text = [b"" if token in self.special else piece for token, piece in enumerate(self.pieces)]
        object.__setattr__(self, "_text", text)
        object.__setattr__(self, "_whole", [_as_whole(piece) for piece in text])

    def decoder(self) -> BytesDecoder:
        return BytesDecoder(self._text, self._whole)

    def decode(self, token_ids: Sequence[int]) -> str:
        return b"".join([self._text[token] for token in token_ids]).decode("utf-8", "replace")

    def token_text(self, token_id: int) -> str:
        return self.pieces[token_id].decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        return self.pieces[token_id]


def _as_whole(piece: bytes) -> str | None:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return None


def read_vocabulary(tokenizer: Any, size: int) -> Vocabulary:
    """The vocabulary of a `tokenizers.Tokenizer`, with at least `size` tokens: models pad theirs. Raises
    `ValueError` for a kind of tokenizer that the table cannot express.
    """
    added = tokenizer.get_added_tokens_decoder()
    by_id = {token_id: piece for piece, token_id in tokenizer.get_vocab(with_added_tokens=True).items()}
    piece_bytes = _byte_level if "ByteLevel" in str(tokenizer.decoder) else _sentencepiece
    pieces = [b""] * max(size, max(by_id) + 1)
    for token_id, piece in by_id.items():
        pieces[token_id] = piece.encode() if token_id in added else piece_bytes(piece)
    special = frozenset(token_id for token_id, token in added.items() if token.special)
    vocabulary = Vocabulary(pieces, special)
    if vocabulary.decode(tokenizer.encode(_PROBE, add_special_tokens=False).ids).lstrip() != _PROBE:
        raise ValueError(
            "This model's tokenizer is neither byte-level BPE nor SentencePiece with byte fallback."
        )
    return vocabulary


def _byte_alphabet() -> dict[str, int]:
    """Byte-level BPE writes each byte as a printable character: itself, or one from U+0100 upwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(0x100 + index): byte for index, byte in enumerate(others)}


_ALPHABET = _byte_alphabet()
_BYTE_PIECE = re.compile("<0x([0-9A-F]{2})>")


def _byte_level(piece: str) -> bytes:
    if all(character in _ALPHABET for character in piece):
        return bytes(_ALPHABET[character] for character in piece)
    return piece.encode()


def _sentencepiece(piece: str) -> bytes:
    if match := _BYTE_PIECE.fullmatch(piece):
        return bytes([int(match[1], 16)])
    return piece.replace("\u2581", " ").encode()
