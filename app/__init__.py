"""Longhaul, the product. This package imports nothing, so that a worker never loads Flask and a web process
never loads an engine.

    jobs/       what a job is and what may happen to it: statuses, lifecycle, log
    line/       who goes next, and where
    gate/       who may join the line
    tokens/     how many tokens a prompt has
    files/      files that clients upload and batches write
    batches/    files of lines, each of which becomes a job
    webhooks/   who is told of what, and what became of it
    openai/, anthropic/     their APIs over the same jobs; surfaces/ has every API that a job may come through
    drafting    a request into a job that may join the line
    streams/    the live tail of a running job, and following a job's log from any cursor
    accounts/   tenants and their API keys
    api/        the HTTP and WebSocket edge
    cli/        the `longhaul` command
    db, tables, dispatch, redis, clock, ids     what they stand on
"""
