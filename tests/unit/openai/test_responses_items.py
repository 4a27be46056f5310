"""Input items as messages and as a list, and what follows a response."""

from app.jobs import parts as parts_of
from app.jobs.log import Output
from app.jobs.states import Status
from app.openai.responses import items
from app.openai.responses.body import CreateResponse, echo, to_request
from tests.openai_contract import ITEM, faults
from tests.unit.openai.logs import JOB_ID, make_job

CALL = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":1}'}
OTHER = {**CALL, "call_id": "c2"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "3"}
THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "Hm"}],
}


def user(text):
    return {"role": "user", "content": text}


def asked(*given):
    return CreateResponse(model="m", input=list(given))


def messages(*given):
    return to_request(asked(*given)).input


def job_of(*given, status=Status.COMPLETED):
    return make_job(status, echo=echo(asked(*given)))


def test_content_comes_as_a_string_or_in_parts():
    parts = [{"type": "input_text", "text": "Hel"}, {"type": "input_text", "text": "lo"}]
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    said = messages(user("Hello"), user(parts), refusal)
    assert [(message.role, message.text) for message in said] == [
        ("user", "Hello"), ("user", "Hello"), ("assistant", "No."),
    ]  # fmt: skip


def test_calls_after_an_assistants_words_are_its_own():
    said = messages(user("Add"), {"role": "assistant", "content": "Well"}, THOUGHT, CALL, OTHER, RESULT)
    assert [message.role for message in said] == ["user", "assistant", "tool"]
    assert said[1].text == "Well"
    assert [call.id for call in said[1].tool_calls] == ["c1", "c2"]
    assert (said[2].tool_call_id, said[2].text) == ("c1", "3")


def test_calls_after_results_are_another_message():
    said = messages(user("Add"), CALL, RESULT, OTHER)
    assert [message.role for message in said] == ["user", "assistant", "tool", "assistant"]
    assert said[1].text == ""


def test_a_result_comes_in_parts_too():
    said = messages(CALL, {**RESULT, "output": [{"type": "input_text", "text": "3"}]})
    assert said[-1].text == "3"


def test_the_list_of_input_items_is_openais():
    listed = items.input_items(
        job_of(user("Add"), {"role": "assistant", "content": "Well"}, THOUGHT, CALL, RESULT)
    )
    assert [item["type"] for item in listed] == [
        "message", "message", "reasoning", "function_call", "function_call_output",
    ]  # fmt: skip
    assert len({item["id"] for item in listed}) == len(listed)
    assert listed[2]["id"] == "rs_1"
    assert not [fault for item in listed for fault in faults(ITEM, item)]


def test_an_id_that_is_given_twice_is_kept_once():
    listed = items.input_items(job_of({**user("a"), "id": "msg_1"}, {**user("b"), "id": "msg_1"}))
    assert listed[0]["id"] == "msg_1"
    assert listed[1]["id"].startswith(f"msg_{JOB_ID.removeprefix('job_')}")


def test_a_response_goes_on_from_its_input_and_output():
    made = (parts_of.reasoning("Hm", 1), parts_of.text("Well"), parts_of.call(0, "c1", "add"))
    before = items.conversation(job_of(user("Add")), Output("x", parts=made))
    assert [item["type"] for item in before] == ["message", "reasoning", "message", "function_call"]
    follows = CreateResponse(model="m", input=[RESULT], previous_response_id="resp_1")
    said = to_request(follows, items.messages(before)).input
    assert [message.role for message in said] == ["user", "assistant", "tool"]
    assert said[1].tool_calls[0].arguments == "{}"
    listed = items.input_items(make_job(echo=echo(follows, before)))
    assert [item["id"] for item in listed[:4]] == [item["id"] for item in before]
    assert listed[4]["type"] == "function_call_output"


def test_a_call_that_was_cut_off_does_not_go_on():
    made = (parts_of.text("Well"), parts_of.call(0, "c1", "add"), parts_of.arguments(0, '{"a'))
    before = items.conversation(job_of(user("Add"), status=Status.CANCELLED), Output("x", parts=made))
    assert [item["type"] for item in before] == ["message", "message"]


def test_output_that_is_handed_back_is_input():
    made = (parts_of.reasoning("Hm", 1), parts_of.text("Well"), parts_of.call(0, "c1", "add"))
    handed = items.conversation(job_of(user("Add")), Output("x", parts=made))
    said = messages(*handed, RESULT)
    assert [message.role for message in said] == ["user", "assistant", "tool"]
