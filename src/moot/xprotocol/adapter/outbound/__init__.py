"""Endpoints of others, offered to local MCP clients as one MCP server."""
