"""MCP on both sides: servers that we ask (`upstream`), clients that ask us (`downstream`)."""
