"""MCP to XProtocol and back, pure: tools, prompts and resources become contracts, calls become events."""
