"""OpenAI's API over HTTP and WebSocket: a call starts jobs and waits for them, streams them, or leaves them in
the background. What its bodies mean and how jobs are spoken of is `app.openai`'s.
"""
