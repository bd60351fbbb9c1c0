"""Between MCP and spaces: a server joins, and a space is a server: for many people, to operate it."""
