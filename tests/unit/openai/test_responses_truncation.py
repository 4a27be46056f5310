"""A conversation that is too long loses its oldest turns, and no more than it must."""

from hypothesis import given
from hypothesis import strategies as st

from app.jobs.requests import JobRequest, Message
from app.openai.responses.truncation import fitted


def asked(*said):
    return JobRequest(model="m", input=list(said))


def user(text):
    return Message(role="user", content=text)


def within(limit):
    return lambda wanted: sum(message.chars for message in wanted.input) <= limit


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(0, 60))
def test_as_few_of_the_oldest_go_as_may_be(lengths, limit):
    wanted = asked(*(user("x" * length) for length in lengths))
    kept = [message.chars for message in fitted(wanted, within(limit)).input]
    assert kept == lengths[len(lengths) - len(kept) :]
    assert sum(kept) <= limit or len(kept) == 1
    assert kept == lengths or sum(lengths[-len(kept) - 1 :]) > limit


def test_what_fits_or_is_a_text_stays_as_it_is():
    wanted = asked(user("a"), user("b"))
    assert fitted(wanted, within(2)) is wanted
    text = JobRequest(model="m", input="Hello")
    assert fitted(text, lambda _: False) is text


def test_system_messages_stay():
    wanted = asked(Message(role="developer", content="ddd"), user("aaa"), user("b"))
    assert [message.text for message in fitted(wanted, within(4)).input] == ["ddd", "b"]


def test_a_call_goes_with_its_results():
    call = {"id": "c1", "name": "add", "arguments": "{}"}
    wanted = asked(
        user("a"),
        Message(role="assistant", tool_calls=[call]),
        Message(role="tool", tool_call_id="c1", content="3"),
        user("b"),
    )
    assert [message.text for message in fitted(wanted, within(4)).input] == ["b"]
