"""Chat completions: each choice is a job. `body` asks for them, `completion` tells of them when they have
ended, `chunks` while they run.
"""
