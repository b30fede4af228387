"""The one error that a user is meant to read."""


class UserError(Exception):
    """A failure with a cause and a cure, said in one plain sentence.

    The command line prints it without a traceback and exits 1. Its text says what was got, what was
    expected, where (file, line, key), and how to cure it.
    """
