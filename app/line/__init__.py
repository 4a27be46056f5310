"""The line: who waits, who goes next, and how long it takes. `plan` decides purely; `waiting` reads Postgres,
`placing` writes it, `booking` turns the ledger into shares, `measuring` measures; `estimates` and `places` tell
a job where it stands; `control` is what operators do. Who may join is `app.gate`'s.
"""
