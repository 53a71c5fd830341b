"""The event loop and its readers: simulated times, the values that a plan must compute, bounds of its iteration."""
