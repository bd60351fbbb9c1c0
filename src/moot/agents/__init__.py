"""Agents as members of a space: `model` asks a language model, `hook` lets coding agents ask people, `acp`
runs them as members, and `a2a` is the door for agents elsewhere."""
