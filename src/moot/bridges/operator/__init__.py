"""The operator's MCP server: a person's own assistant looks at proposals, and the person decides."""
