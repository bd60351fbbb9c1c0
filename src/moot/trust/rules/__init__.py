"""Rules: what they match, their limits, what suspends them, and the files that they are kept in."""
