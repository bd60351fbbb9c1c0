"""Proposals as rules see them, and what became of them, live or out of a journal."""
