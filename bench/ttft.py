"""`ttft`: what the platform adds to a first token, and streamed chat beside vLLM's own server.

From submitting over HTTP to the first `output.delta` on a WebSocket, minus the bare engine's own time to its
first token: one job at a time, the two in turn, so that both meet the same moments.

POST /v1/chat/completions, streamed, through us and through vLLM's OpenAI server with the same model, engine
arguments and requests. Two engines would compete for the machine, so the servers take turns: vLLM's, ours,
vLLM's again, each started anew and warmed up, nothing of ours running beside vLLM's but idle Postgres and
Valkey. The reference is the mean of its two turns, so that a machine that steadily gets slower or faster
favours nobody; both are in the notes, and where they lie far apart, the comparison is worth little.
"""

import asyncio
import time
from collections.abc import Sequence
from operator import attrgetter
from statistics import mean
from typing import Final

from bench import chats
from bench.bare import Order, run_bare
from bench.chats import Side
from bench.clients import Client, Seen, connected
from bench.harness import Platform, platform
from bench.report import Aim, Figure, Report, percentile
from bench.served import served

# The simulated engine's own time is known: one step. The real one shows what its work does to ours.
MODELS: Final = {"simulated": "simulated", "vllm": "smollm2"}
SERVED: Final = MODELS["vllm"]  # the model that vLLM's own server is measured with
AIM: Final = Aim("value", "<=", 10)
RATE_AIM: Final = Aim("ratio", ">=", 0.95)
TOKENS: Final = 4
WARM_UP: Final = 5
FULL: Final = (100, 120.0)  # jobs of each kind, and the seconds after which there are no more
QUICK: Final = (20, 8.0)
FULL_CHATS: Final = chats.Load(idle=100, jobs=64, tokens=96, rounds=3)
QUICK_CHATS: Final = chats.Load(idle=20, jobs=64, tokens=32, rounds=1)


def measure(report: Report, *, quick: bool, engine: str = "") -> None:
    models = [MODELS[engine]] if engine else list(MODELS.values())
    load = QUICK_CHATS if quick else FULL_CHATS
    with platform() as started:
        theirs = [_served_chats(started, load)] if SERVED in models else []
        ours = _ours(report, started, models, QUICK if quick else FULL, load)
        if ours:
            theirs.append(_served_chats(started, load))
            report.add(*_chat_figures(ours, theirs))
            report.note(_note(ours, theirs))


def _ours(
    report: Report, started: Platform, models: Sequence[str], size: tuple[int, float], load: chats.Load
) -> Side | None:
    side = None
    started.start_web()
    started.start_background()
    started.start_dispatcher()
    for model in models:
        started.start_worker(model)
        whole, bare = asyncio.run(_alternate(started, model, *size))
        report.add(*_figures(model, whole, bare))
        if model == SERVED:
            side = asyncio.run(chats.run(started.url, started.key, model, load))
        started.kill("gpu")
    started.stop_all()
    return side


def _served_chats(started: Platform, load: chats.Load) -> Side:
    with served(started, SERVED) as url:
        return asyncio.run(chats.run(url, "unused", SERVED, load))


def _chat_figures(ours: Side, theirs: Sequence[Side]) -> list[Figure]:
    added = Figure("chat: added p50", _p50(ours) - mean([_p50(side) for side in theirs]), "ms", aim=AIM)
    rate = mean([side.rate for side in theirs])
    return [
        *(
            Figure(
                f"chat{where}: first token {name}",
                _milliseconds(times(ours), share),
                "ms",
                reference=mean([_milliseconds(times(side), share) for side in theirs]),
            )
            for where, times in (("", _IDLE), (f" at {chats.CONCURRENT}", _BUSY))
            for name, share in (("p50", 0.5), ("p95", 0.95))
        ),
        added,
        Figure(
            f"chat output at {chats.CONCURRENT} concurrent",
            ours.rate,
            "tokens/s",
            reference=rate,
            aim=RATE_AIM,
            rounds=[found / rate for found in ours.rates],
        ),
    ]


def _note(ours: Side, theirs: Sequence[Side]) -> str:
    """What tells whether the comparison is fair."""
    turns = [f"{_p50(side):.1f} ms and {side.rate:.0f} tokens/s" for side in theirs]
    counts = [f"{side.prompt_tokens} in, {side.output_tokens} out" for side in (ours, *theirs)]
    return (
        f"vLLM's own server, its two turns: {'; '.join(turns)}. Tokens, ours and theirs: {'; '.join(counts)}."
    )


def _p50(side: Side) -> float:
    return _milliseconds(side.idle, 0.5)


def _milliseconds(seconds: Sequence[float], share: float) -> float:
    return 1000 * percentile(seconds, share)


_IDLE: Final = attrgetter("idle")
_BUSY: Final = attrgetter("busy")


def _figures(model: str, whole: Sequence[float], bare: Sequence[float]) -> list[Figure]:
    """Milliseconds from seconds."""
    figures = []
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        mine, reference = 1000 * percentile(whole, share), 1000 * percentile(bare, share)
        figures += [
            Figure(f"{model}: first token {name}", mine, "ms", reference),
            Figure(f"{model}: added {name}", mine - reference, "ms", aim=AIM if name == "p50" else None),
        ]
    return figures


async def _alternate(
    started: Platform, model: str, jobs: int, seconds: float
) -> tuple[list[float], list[float]]:
    whole: list[float] = []
    bare: list[float] = []
    end = time.monotonic() + seconds
    async with connected(started.url, started.key) as client:
        while len(bare) < WARM_UP + jobs and (len(bare) <= WARM_UP or time.monotonic() < end):
            number = len(bare)
            # The numbers come first: no prompt begins like an earlier one, whose prefix is cached.
            whole.append(await _first_delta(client, model, f"{2 * number}: what is the capital of France?"))
            order = Order([f"{2 * number + 1}: what is the capital of France?"], TOKENS, 1)
            bare += (await asyncio.to_thread(run_bare, order)).first_token_seconds
    return whole[WARM_UP:], bare[WARM_UP:]


async def _first_delta(client: Client, model: str, prompt: str) -> float:
    """Seconds. The job is followed to its end, so that the next finds the engine idle."""
    body = {"model": model, "input": prompt, "max_output_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    began = time.monotonic()
    seen: Seen = await client.follow(await client.submit(body))
    return seen.first_delta_at - began
