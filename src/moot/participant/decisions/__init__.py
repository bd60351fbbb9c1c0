"""Proposals: one's own, and those of others that wait for a decision."""
