"""The first job of a fresh installation: a local account with a key, and one question whose answer streams to
the terminal. It speaks HTTP as any client does, except for making the key, which needs the database.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import httpx

from app.accounts.keys import create_account, create_key, find_account
from app.db import transaction

ACCOUNT: Final = "local"
QUESTION: Final = "What is the capital of France?"
ENDINGS: Final = frozenset(
    f"job.{status}" for status in ("completed", "incomplete", "failed", "cancelled", "expired")
)
RECONNECTS: Final = 5


class SampleFailed(Exception):
    """The sample job did not complete; the message is one plain sentence."""


def local_key(file: Path, client: httpx.Client) -> str:
    """The key of the local account: that of last time if it still works, else a new one, kept in `file`."""
    if file.exists():
        secret = file.read_text().strip()
        answer = client.get("/v1/models", headers={"Authorization": f"Bearer {secret}"})
        if answer.status_code != httpx.codes.UNAUTHORIZED:
            return secret
    with transaction() as session:
        account = find_account(session, ACCOUNT) or create_account(session, ACCOUNT)
        _, secret = create_key(session, account, "longhaul up")
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    new.touch(mode=0o600)
    new.write_text(secret)
    new.rename(file)
    return secret


def run_sample(client: httpx.Client, model: str, write: Callable[[str], None]) -> None:
    """Ask `QUESTION` and hand the answer to `write` as it comes. Raises `SampleFailed`."""
    body = {"model": model, "input": QUESTION, "max_output_tokens": 128, "temperature": 0}
    answer = client.post("/v1/jobs", json=body)
    if answer.status_code not in {httpx.codes.OK, httpx.codes.ACCEPTED}:
        raise SampleFailed(f"The sample job was refused with status {answer.status_code}: {answer.text[:500]}")
    job = answer.json()
    text = ""
    for event in follow(client, job["urls"]["events"]):
        match event.get("type"):
            case "output.delta":
                text += event["delta"]
                write(event["delta"])
            case "output.rewind":
                text = text[: event["offset"]]
                write(f"\n{text}")
            case "job.completed":
                return
            case "job.incomplete" if _reason(event) == "max_output_tokens":
                return  # a talkative model, not a broken one
            case ending if ending in ENDINGS:
                raise SampleFailed(f"The sample job {job['id']} ended as {event['status']}: {_reason(event)}.")
    raise SampleFailed(f"The stream of the sample job {job['id']} ended too early.")


def _reason(event: dict[str, Any]) -> str:
    """Why a job ended without completing: an error's message, or the name of what cut it short."""
    error, details = event.get("error"), event.get("incomplete_details")
    return str(error["message"] if error else details["reason"] if details else "no reason given")


def follow(client: httpx.Client, url: str) -> Iterator[dict[str, Any]]:
    """The events of a job to its end, over server-sent events, resumed where a connection broke."""
    last_id = ""
    for attempt in range(RECONNECTS):
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
        try:
            with client.stream("GET", url, headers=headers, timeout=60) as answer:
                answer.raise_for_status()
                for event_id, event in _parse(answer.iter_lines()):
                    last_id = event_id or last_id  # a notice has none
                    yield event
                    if event.get("type") in ENDINGS:
                        return
        except httpx.TransportError:
            time.sleep(0.5 * (attempt + 1))


def _parse(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Pairs of event id and data, the data with the event's type."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        elif "data" in fields:
            yield fields.get("id", ""), {"type": fields.get("event", "message"), **json.loads(fields["data"])}
            fields = {}
