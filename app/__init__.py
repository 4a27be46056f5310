"""Longhaul, the product. This package imports nothing, so that a worker never loads Flask and a web process
never loads an engine.

    jobs/       what a job is and what may happen to it: statuses, lifecycle, log
    streams/    the live tail of a running job, and following a job's log from any cursor
    accounts/   tenants and their API keys
    api/        the HTTP and WebSocket edge
    cli/        the `longhaul` command
    db, tables, dispatch, redis, clock, ids     what they stand on
"""
