"""OpenAI's API over our jobs: what its bodies ask for becomes jobs, and what it says of responses, chat
completions and completions is read from jobs and their logs. It stores nothing and knows no HTTP; `app.api`
serves it.
"""
