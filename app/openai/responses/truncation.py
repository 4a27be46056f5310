"""`truncation: auto`: a conversation that is too long loses its oldest turns, as few as may be. Pure."""

from collections.abc import Callable, Sequence

from app.jobs.requests import JobRequest, Message


def fitted(wanted: JobRequest, fits: Callable[[JobRequest], bool]) -> JobRequest:
    """`wanted`, without as many of its oldest messages as it takes for `fits`; the last ones stay, enough or
    not, and so do instructions and system messages. A call goes with its results. `fits` is asked about as
    often as the number of messages has binary digits.
    """
    if isinstance(wanted.input, str) or fits(wanted):
        return wanted
    turns = _turns(wanted.input)
    least, most = 1, len(turns) - 1
    while least < most:
        middle = (least + most) // 2
        if fits(_without(wanted, turns, middle)):
            most = middle
        else:
            least = middle + 1
    return _without(wanted, turns, least) if turns[1:] else wanted


def _without(wanted: JobRequest, turns: Sequence[Sequence[int]], count: int) -> JobRequest:
    dropped = {index for turn in turns[:count] for index in turn}
    kept = [message for index, message in enumerate(wanted.input) if index not in dropped]
    return wanted.model_copy(update={"input": kept})


def _turns(said: Sequence[Message]) -> list[list[int]]:
    """Where the messages are that may go, oldest first, those together that go together."""
    turns: list[list[int]] = []
    of_call: dict[str, list[int]] = {}
    for index, message in enumerate(said):
        if message.role in {"system", "developer"}:
            continue
        turn = of_call.get(message.tool_call_id or "")
        if turn is None:
            turn = []
            turns.append(turn)
        turn.append(index)
        of_call |= dict.fromkeys((call.id for call in message.tool_calls), turn)
    return turns
