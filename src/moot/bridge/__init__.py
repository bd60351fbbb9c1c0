"""Bridges between MCP and a space: a server joins as a member, a client takes part through a face."""
