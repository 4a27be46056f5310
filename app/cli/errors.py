"""How a command says that it could not do its work. It knows nothing of what that was."""


class CommandFailed(Exception):
    """The message is plain sentences, shown on stderr as they stand, without a traceback."""


class Unreachable(CommandFailed):
    """The API did not answer; asking again may help."""
