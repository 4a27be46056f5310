"""Anthropic's Messages over the same jobs: what a message's parameters mean as a job, how a job is spoken of as
a message, and errors in Anthropic's words. Pure; it knows no batch and no HTTP.
"""
