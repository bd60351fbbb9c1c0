"""The MCP server that `moot mcp` is: a space as one member sees it, with its offers and pending decisions."""
