"""The Responses API over our jobs: `body` (what a call asks for), `options` (its tools, choices and formats),
`items` (input items and the messages they make), `truncation`, `output` (output items), `response` (the object)
and `events` (the stream). It knows no HTTP and reads no database.
"""
