"""Webhook endpoints, their secrets, and the log of what became of each delivery, over HTTP."""
