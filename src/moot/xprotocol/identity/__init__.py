"""Identities: keys, their text forms, and the key file."""
