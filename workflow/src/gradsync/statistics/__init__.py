"""How sure a measured number is: intervals, arithmetic of them, and whether the machine was quiet."""
