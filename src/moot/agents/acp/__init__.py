"""The Agent Client Protocol: agents of others as members of a space, and a space in an editor."""
