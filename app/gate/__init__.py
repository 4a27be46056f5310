"""The gate to the line: who may join it now. `admission` asks Redis once, in scripts (`*.lua`) that change all
or nothing; `refusals` says why not; `offline` is the bound while Redis is away; `recovery` reads again what
Redis lost.
"""
