"""How large a regular expression of a JSON schema is: a few characters of it can stand for millions. It knows
the syntax that counts, not whether an expression is a good one.
"""

import re
from dataclasses import dataclass
from typing import Final

MAX_PATTERN_LENGTH: Final = 512
MAX_PATTERN_CHARS: Final = 1_000  # with every repetition written out

_TOKEN = re.compile(
    r"""
      \\.                                 # an escape
    | \[ \^? \]? (?: \\. | [^\]\\] )* \]  # a class
    | \( (?: \?<?[:=!] | \?P?<\w*> )?     # the start of a group, of whatever kind
    | \{ (?P<least>\d+) (?P<range> , (?P<most>\d*) )? \} [?+]?
    | .
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)


@dataclass
class _Group:
    """`closed` is what the group holds but for its `last` part, which a repetition may still multiply."""

    closed: int = 0
    last: int = 0

    def follow_with(self, size: int) -> None:
        self.closed, self.last = self.closed + self.last, size


def written_out(pattern: str) -> int:
    """How many characters and classes it comes to with each repetition (`{n}`, `{n,m}`) written out; `*`, `+`
    and `?` repeat nothing here, and `{n,}` the least it may.
    """
    groups = [_Group()]
    for token in _TOKEN.finditer(pattern):
        text = token.group()
        if token["least"] is not None:
            groups[-1].last *= max(1, int(token["least"]), int(token["most"] or 0))
        elif text[0] == "(":
            groups.append(_Group())
        elif text == ")" and len(groups) > 1:
            inner = groups.pop()
            groups[-1].follow_with(inner.closed + inner.last)
        elif text not in {"*", "+", "?", "|", "^", "$", ")"}:
            groups[-1].follow_with(1)
    return sum(group.closed + group.last for group in groups)
