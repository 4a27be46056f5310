"""Benchmarks: `python -m bench NAME`. Each starts its own servers and the Procfile's processes in a throw-away
folder, and measures its reference in the same run.

harness    what a bench stands on: servers, processes, an account
clients    a fast HTTP and WebSocket client
served     vLLM's own OpenAI server: a reference
chats      streamed chat completions of one server
bare       a worker that can also run its engine without the platform: the reference
plain      a worker with two plain Celery queues: what the line is compared with
bulk       waiting jobs by the thousand
batch_client     a file of requests: written, run, fetched, checked
batch_memory     what processes take more than when idle
batch_reference  vLLM's own run-batch
report     figures, their table and their JSON line
"""
