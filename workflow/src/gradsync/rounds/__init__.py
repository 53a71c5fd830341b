"""What follows from the rounds of a collective: who holds which sums, what links carry, what each rank does."""
