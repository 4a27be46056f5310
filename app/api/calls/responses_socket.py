"""`WS /v1/responses`: OpenAI's WebSocket mode. A client sends `response.create` events, each the body of a
POST, and gets the events that the POST would stream. With a `stream_id`, requests of the same one are answered
one after the other and those of different ones at the same time; events say whose they are.

Callers are checked before the handshake, by key, and again with each request. Errors are `error` events and
leave the connection as it is. Close codes: 1001 an hour after the beginning, 1009 for a message beyond the
limit of a body, 1012 when this server stops. A client that goes away cancels what runs, unless that is to go
on; where the server ends the connection, what is stored goes on.
"""

from contextlib import closing, suppress
from functools import partial
from typing import Annotated, Any, Final, Literal

import flask_sock
import orjson
import structlog
from flask import Response, current_app, request
from pydantic import BaseModel, ConfigDict, StringConstraints
from simple_websocket import ConnectionClosed
from simple_websocket import ConnectionError as HandshakeFailed
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import ProtocolError

from app import clock
from app.api import auth, draining, following, sockets
from app.api.bodies import parse
from app.api.calls import conversation
from app.api.calls.conversation import ConversationSocket
from app.api.calls.lanes import Lane, Lanes, LanesFull, Turn
from app.api.calls.responses_turn import Turns
from app.api.describe import describe
from app.api.errors import ApiError, BodyInvalid, ServerStopping, envelope
from app.api.request_ids import request_id

log = structlog.get_logger(__name__)

PATH: Final = "/v1/responses"
MAX_SECONDS: Final = 3600.0
LOOK_SECONDS: Final = 1.0
# What clients act on, of an error's headers.
ADVICE: Final = ("Retry-After", "retry-after-ms", "x-should-retry")

sock: Final = flask_sock.Sock()
blueprint = auth.protected("responses_socket")


class ConnectionFull(ApiError):
    status = 429
    code = "websocket_connection_full"


class ConnectionTooOld(ApiError):
    code = "websocket_connection_limit_reached"


class ClientEvent(BaseModel):
    type: Literal["response.create", "response.steer"]
    stream_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,256}$")] | None = None


class Steer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: str
    input: str | list[dict[str, Any]]
    previous_response_id: str


@blueprint.before_request
def _admit() -> None:
    if request.url_rule is not None and request.url_rule.websocket:
        sockets.check_origin(has_key=True)
        following.require_place()
        conversation.converse()


@blueprint.errorhandler(ProtocolError)
@blueprint.errorhandler(HandshakeFailed)
def _refuse(error: Exception) -> Response:
    return envelope(400, f"The WebSocket handshake is not valid: {error}.", "invalid_handshake")


@blueprint.get(PATH)
@describe("WebSocket mode", answers={}, errors=(401, 426))
def show() -> Response:
    response = envelope(
        426,
        "GET opens a WebSocket here: send 'Upgrade: websocket'. Responses are created with POST.",
        "upgrade_required",
    )
    response.headers["Upgrade"] = "websocket"
    return response


@sock.route(PATH, bp=blueprint)  # type: ignore[untyped-decorator]  # flask-sock ships no types
@describe(
    "WebSocket mode",
    answers={101: (None, "`response.create` events come in, the events of streamed responses go out.")},
    errors=(400, 401, 403, 426, 503),
)
def converse(ws: ConversationSocket) -> None:
    Connection(ws).hold()


class Connection:
    """One client's, from the handshake to the end."""

    def __init__(self, ws: ConversationSocket) -> None:
        self._ws = ws
        self._lanes = Lanes()
        self._app = current_app._get_current_object()  # type: ignore[attr-defined]  # noqa: SLF001 - Flask's way
        self._headers = {"Authorization": request.headers["Authorization"]}
        self._ends_at = clock.monotonic() + MAX_SECONDS
        self._turns = Turns(self._lanes)

    def hold(self) -> None:
        """Take what comes until the end. Raises `ConnectionClosed`."""
        with following.place():
            try:
                while not self._is_ended():
                    for message in self._ws.receive(LOOK_SECONDS):
                        self._take(message)
            finally:
                self._lanes.end()

    def _is_ended(self) -> bool:
        if draining.has_begun():
            self._part(
                ServerStopping(
                    "This server is about to stop; connect again. Responses that are stored go on: retrieve"
                    " them, with stream=true to follow them."
                ),
                CloseReason.SERVICE_RESTART,
            )
        elif clock.monotonic() >= self._ends_at:
            self._part(
                ConnectionTooOld(f"A connection lasts {MAX_SECONDS / 60:g} minutes; open another to go on."),
                CloseReason.GOING_AWAY,
            )
        else:
            return False
        return True

    def _part(self, why: ApiError, code: CloseReason) -> None:
        """The server ends this: tell whoever waits, and let go what the client can come back for."""
        self._turns.keeps_stored = True
        waiting = self._lanes.active or [None]
        self._lanes.end()
        for lane in waiting:
            self._say(lane, [_error_event(why)])
        self._ws.close(code)

    def _take(self, message: bytes) -> None:
        lane: Lane = None
        try:
            event = _read(message)
            said = parse(ClientEvent, event)
            lane = said.stream_id
            if said.type == "response.steer":
                self._say(lane, [_steering_failed(parse(Steer, event))])
            else:
                self._lanes.add(lane, Turn(partial(self._answer, lane, message), len(message)))
        except LanesFull as error:
            self._say(lane, [_error_event(ConnectionFull(str(error)))])
        except ApiError as error:
            self._say(lane, [_error_event(error)])

    def _answer(self, lane: Lane, message: bytes) -> None:
        """As the same body would be answered that is sent by POST."""
        made = self._app.test_request_context(
            PATH, method="POST", data=message, content_type="application/json", headers=self._headers
        )
        with made, suppress(ConnectionClosed):
            structlog.contextvars.bind_contextvars(request_id=request_id())
            log.info("turn", lane=lane, bytes=len(message))
            try:
                auth.require_key()
                with closing(self._turns.events()) as turn:
                    for events in turn:
                        self._say(lane, events)
            except ConnectionClosed:
                raise
            except Exception as error:  # noqa: BLE001 - as for any request, by the table of errors
                self._say(lane, [_error_event(error)])

    def _say(self, lane: Lane, events: list[dict[str, Any]]) -> None:
        whose = {} if lane is None else {"stream_id": lane}
        self._ws.send_texts([orjson.dumps({**event, **whose}) for event in events])


def _read(message: bytes) -> dict[str, Any]:
    try:
        event = orjson.loads(message)
    except orjson.JSONDecodeError as error:
        raise BodyInvalid(f"The message is not valid JSON: {error}.") from error
    if not isinstance(event, dict):
        raise BodyInvalid("The message must be a JSON object.")
    return event


def _error_event(error: Exception) -> dict[str, Any]:
    """As its HTTP answer would say it."""
    answer = current_app.make_response(current_app.handle_user_exception(error))
    said: dict[str, Any] = answer.get_json()["error"]
    if advice := {name.lower(): answer.headers[name] for name in ADVICE if name in answer.headers}:
        said["headers"] = advice
    return {"type": "error", "status": answer.status_code, "error": said}


def _steering_failed(steer: Steer) -> dict[str, Any]:
    return {
        "type": "response.steer.failed",
        "sequence_number": 0,
        "error": {
            "type": "invalid_request_error",
            "code": "steering_not_supported",
            "message": "Responses cannot be steered here: cancel it, and create another.",
        },
        "steer": steer.model_dump(include={"input", "previous_response_id"}),
    }
