"""Configuration files of MCP clients: which servers they name, and how these are started in a space."""
