"""Bad input, seeded: every subcommand and every position of every configuration: `python tests/fuzz --inputs 10000`."""
