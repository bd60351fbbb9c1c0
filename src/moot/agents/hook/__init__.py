"""Hooks of coding agents that people start themselves: their calls are decided in a space."""
