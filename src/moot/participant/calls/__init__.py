"""Requests to others' tools, resources and prompts, and what comes of them."""
