"""Toy: Nobody, "Toy: One Message over One Link", nowhere."""
