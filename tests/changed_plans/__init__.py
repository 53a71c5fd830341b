"""Plans changed at random, tried against check, oracle and real ranks: `python tests/changed_plans --help`."""
