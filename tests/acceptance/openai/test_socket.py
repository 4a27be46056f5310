"""WebSocket mode: `client.responses.connect()`."""

from tests.acceptance.openai.conftest import MODEL
from tests.acceptance.openai.story import Story
from tests.acceptance.openai.test_responses import ended
from tests.openai_contract import faults_of_event

SHORT = {"model": MODEL, "input": "[[say=Hello there.]] Greet me."}


def told(connection):
    story = Story()
    while not story.is_over:
        event = connection.recv().to_dict()
        assert not faults_of_event({key: value for key, value in event.items() if key != "stream_id"})
        story.take(event)
    return story


def test_a_connection_tells_one_response_after_the_other(client):
    with client.responses.connect() as connection:
        connection.response.create(**SHORT)
        first = told(connection)
        connection.response.create(
            model=MODEL, input="[[say=Again.]] And again?", previous_response_id=first.response["id"]
        )
        second = told(connection)
    assert (first.text, second.text) == ("Hello there.", "Again.")
    assert client.responses.retrieve(second.response["id"]).output_text == "Again."


def test_a_connection_calls_tools(client):
    tool = {
        "type": "function",
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        "strict": False,
    }
    with client.responses.connect() as connection:
        connection.response.create(
            model=MODEL, input='[[call=get_weather {"city": "Paris"}]] Weather?', tools=[tool]
        )
        story = told(connection)
        call = story.response["output"][0]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "18 degrees"}
        connection.response.create(
            model=MODEL,
            input=[output],
            previous_response_id=story.response["id"],
            tools=[tool],
            max_output_tokens=20,
        )
        assert told(connection).text


def test_what_is_wrong_is_an_error_event_and_the_connection_stays(client):
    with client.responses.connect() as connection:
        connection.response.create(model=MODEL, input="Hello.", tools=[{"type": "web_search"}])
        error = connection.recv()
        assert (error.type, error.status) == ("error", 400)
        assert error.error.param.startswith("tools")
        connection.response.create(model="nothing", input="Hello.")
        assert connection.recv().error.code == "model_not_found"
        connection.response.create(**SHORT)
        assert told(connection).text == "Hello there."


def test_lanes_are_told_side_by_side(client):
    body = {"model": MODEL, "input": "[[step_ms=20]] A story.", "max_output_tokens": 40}
    stories, order = {"a": Story(), "b": Story()}, []
    with client.responses.connect() as connection:
        for lane in stories:
            connection.response.create(**body, stream_id=lane)
        while not all(story.is_over for story in stories.values()):
            event = connection.recv().to_dict()
            lane = event.pop("stream_id")
            order.append(lane)
            stories[lane].take(event)
    assert all(story.response["usage"]["output_tokens"] == 40 for story in stories.values())
    assert "ba" in "".join(order), "one waited for the other"


def test_an_unstored_response_is_followed_on_its_connection_alone(client):
    with client.responses.connect() as connection:
        connection.response.create(**SHORT, store=False)
        first = told(connection)
        follow_up = {"model": MODEL, "input": "[[say=Again.]]", "previous_response_id": first.response["id"]}
        connection.response.create(**follow_up)
        assert told(connection).text == "Again."
    with client.responses.connect() as connection:
        connection.response.create(**follow_up)
        assert connection.recv().error.code == "previous_response_not_found"


def test_a_client_that_leaves_cancels_what_runs(client):
    with client.responses.connect() as connection:
        connection.response.create(model=MODEL, input="[[step_ms=20]] Slow.", max_output_tokens=400)
        created = connection.recv().response
        while connection.recv().type != "response.output_text.delta":
            pass
    assert ended(client, created.id, 15).status == "cancelled"
