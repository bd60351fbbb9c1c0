"""Agents as members of a space: `model` asks a language model, `hook` lets agents of others ask people."""
