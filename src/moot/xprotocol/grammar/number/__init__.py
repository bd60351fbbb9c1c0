"""Numbers within bounds: ranges of digits, integers, multiples of a unit."""
