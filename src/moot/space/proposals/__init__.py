"""Proposals and the calls made of them: what is open, who has to approve, what it may come to."""
