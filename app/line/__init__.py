"""The line: who waits, who goes next, and who may join. `plan` decides purely; `waiting` reads Postgres and
`placing` writes it; `booking` turns the ledger into shares; `admission` is the gate, one round trip to Redis;
`estimates` says how long it takes; `control` is what operators do.
"""
