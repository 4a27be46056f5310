"""Files that clients upload and that batches write: who has which, where their bytes are, when they go. It
knows no HTTP and nothing of what is in a file.
"""
