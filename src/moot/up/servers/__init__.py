"""Small MCP servers that come with Moot, so that a space works where nothing else is installed."""
