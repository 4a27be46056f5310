"""The one error that says that something could not be started here. It knows nothing of what that was."""


class StartFailed(Exception):
    """The message is plain sentences, to be shown as they stand and without a traceback."""
