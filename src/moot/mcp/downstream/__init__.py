"""An MCP server over stdio and HTTP, in both eras, in front of anything that implements `Backend`.

`mcp_server` answers methods, `handshake` and `stateless` are the two eras, `client_requests` sends requests
for input and pending decisions to the client, and `stdio_server`, `http_server` and `response_streams` carry
the bytes.

JSON-RPC is served here and not by the SDK's `Server`: measured on one call that answers at once, the SDK
takes 0.8 to 1.0 ms of CPU over stdio and drops fields that it does not know; this takes about a tenth and
drops none.
"""
