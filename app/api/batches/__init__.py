"""Batches over HTTP and WebSocket: OpenAI's and what is ours besides, and Anthropic's over the same."""
