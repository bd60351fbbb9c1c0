"""What arrives from relays: requests are checked, run on the MCP servers wrapped here, and answered."""
