"""Following a job: what is stored, then what is live, from any cursor, to the end. `frames` is what a follower
sees; `tail` is the live part in Redis; `hub` is the one Redis reader of a process; `channel` joins them.
"""
