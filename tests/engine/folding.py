"""Parts put together again, as a reader of the log does."""

from dataclasses import dataclass, field

from app.jobs.parts import Part


@dataclass
class Folded:
    content: str = ""
    reasoning: str = ""
    calls: list[dict[str, str]] = field(default_factory=list)


def fold(found: list[Part]) -> Folded:
    whole = Folded()
    for part in found:
        match part:
            case {"type": "text", "text": said}:
                whole.content += said
            case {"type": "reasoning", "text": thought}:
                whole.reasoning += thought
            case {"id": call_id, "index": index, "name": name}:
                assert index == len(whole.calls)
                whole.calls.append({"id": call_id, "name": name, "arguments": ""})
            case {"index": index, "arguments": written}:
                whole.calls[index]["arguments"] += written
    return whole
