"""A process with a vLLM engine that generates, for tests that kill one or the other. It writes its child
processes' ids once the first token is there, and how the generation ended.
"""

import asyncio
import json
import sys

import psutil

from tests.engine.conftest import vllm_spec
from workers.engine import Call, EngineDead, Sampling
from workers.engine.loading import load_engine


def say(**words) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


async def main() -> None:
    engine = load_engine(vllm_spec(), 2)
    await engine.start()
    call = Call("call", engine.encode("Count."), Sampling(max_tokens=1900, temperature=0, ignore_eos=True))
    is_announced = False
    try:
        async for _ in engine.generate(call):
            if not is_announced:
                is_announced = True
                say(children={child.pid: child.name() for child in psutil.Process().children(recursive=True)})
    except EngineDead:
        try:
            engine.check()
        except EngineDead:
            say(end="dead")
    await engine.stop()


if __name__ == "__main__":
    asyncio.run(main())
