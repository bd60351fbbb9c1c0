"""Proposals decided in a chat: cards, buttons and replies, each act done as the person who is bound to the account."""
