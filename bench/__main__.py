"""The command: picks a bench, runs it, prints its report. It knows nothing of what is measured."""

import argparse
import signal
import sys
from importlib import import_module
from typing import Final

from bench.report import Report

BENCHES: Final = {
    "overhead": "output tokens/s through the whole platform, over the bare vLLM engine",
    "ttft": "first token beside the bare engine's, streamed chat beside vLLM's own server",
    "submit": "submissions a second on one web process, and their latency",
    "ceiling": "output tokens/s of one worker process at 512 streams",
    "line": "interactive and batch on one engine, against two plain queues (--engine vllm: the real one)",
    "fairness": "an account with ten jobs behind one with 20,000; equal and unequal accounts side by side",
    "depth": "what submitting, planning and claiming cost with 1,000 and with 1,000,000 waiting jobs",
    "overload": "arrivals at 0.5 to 3 times capacity: waits, refusals, shedding",
    "batch": "a file of 50,000 requests through /v1/batches (--engine vllm: beside vLLM's own run-batch)",
    "followers": "3,000 WebSocket followers on one web process: memory and delivery lag",
}
ENGINE_CHOSEN: Final = ("line", "batch", "ttft")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure Longhaul on this machine.",
        epilog="\n".join(f"  {name:10} {what}" for name, what in BENCHES.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", choices=BENCHES, metavar="NAME")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: ends within a minute")
    parser.add_argument(
        "--engine", choices=["vllm", "simulated"], help="of `line` and `batch`, of `ttft` (else both)"
    )
    options = parser.parse_args()
    if options.name is None:
        parser.print_help()
        return
    if options.engine and options.name not in ENGINE_CHOSEN:
        parser.error(f"--engine is for {', '.join(ENGINE_CHOSEN)} alone")
    given = {"engine": options.engine} if options.engine else {}
    # Told to stop, unwind: what was started is stopped on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    report = Report(options.name)
    import_module(f"bench.{options.name}").measure(report, quick=options.quick, **given)
    report.print_table()
    if options.json:
        print(report.json_line())


if __name__ == "__main__":
    main()
