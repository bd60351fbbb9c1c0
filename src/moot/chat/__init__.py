"""Proposals decided in a chat: cards, buttons and replies; each act is done as the person who did it."""
