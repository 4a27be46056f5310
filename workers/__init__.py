"""What runs beside the web process.

celery      the Celery app; its only task runs one job
executor    one job: claim, prepare, generate, classify, settle
output      tokens to showable text; running   a job in hand and its unstored output
recorder    output of all running jobs to Redis at once and to Postgres every half second
process     a worker process: boot, heartbeat, drain, death
janitor     what a worker left undone: rings again, rescues, expires, prunes
engine/     the engines behind one seam
embedded/   Postgres and Valkey for a machine that has neither
supervisor/ everything together
"""
