"""Webhooks: who wants to be told of what, what became of telling them, and how a message is signed, guarded and
tried again (Standard Webhooks, standardwebhooks.com). Messages come from the logs of jobs and batches. It knows
no HTTP server.
"""
