"""An MCP server joins a space as a member: what it offers is screened, and it may need a sign-in."""
