"""The two ways in which gradsync says no."""


class InputError(Exception):
    """Bad input from outside: says what is wrong, where, and what to do. Exit status 2."""


class RunError(Exception):
    """A run or a check failed: says which rank, scheme or step. Exit status 1."""
