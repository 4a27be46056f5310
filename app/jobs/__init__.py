"""What a job is, what may happen to it, and its log. Nothing here knows HTTP, streams, webhooks or engines:
they read the log that the lifecycle writes.
"""
