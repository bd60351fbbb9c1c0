"""Rights given at run time, how they end, and who decides in whose place."""
