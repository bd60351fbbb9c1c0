"""Runs a whole space: its gateway, the members that it starts, and the MCP servers that it bridges."""
