"""How long something lives: processes, locks, and what a run keeps for itself."""
