"""Tokens, keys and other secrets: where each of them is kept, how it is read, and that nobody prints it."""
