"""Batches: a file of lines, each of which becomes a job. What a batch is, how its lines are read, checked and
enqueued, how it stands while they run, and the files that it leaves. It knows no HTTP.
"""
