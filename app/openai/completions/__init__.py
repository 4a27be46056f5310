"""Completions of plain prompts, OpenAI's first API: each choice is a job that reads its prompt as it stands.
`body` asks for them, `completion` tells of them when they have ended, `chunks` while they run.
"""
