"""A space seen by one member, as the MCP server that `moot mcp` is: its tools, resources, prompts and
decisions."""
