"""The error whose message users read."""


class UserError(Exception):
    """An error that the user can fix.

    The command line prints its message without a traceback and exits with 1. The message is one sentence: what was
    wrong, where (file, line, key), what was expected, and how to fix it.
    """
