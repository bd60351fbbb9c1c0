"""An MCP server of a space for many people, each with a token of their own provider."""
