"""What a person can do in a space, and its words: for the shell, `moot join`, and wherever people decide."""
