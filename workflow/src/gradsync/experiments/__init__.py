"""What commands do, as functions of typed options: measure, predict, train, emulate.

The dataclasses of options are the command lines, too (`configuration/options.py`). What a module needs in order to run,
it imports when it runs: torch takes seconds.
"""
