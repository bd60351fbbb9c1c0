"""An MCP server whose tool answers with the `_meta` that it was called with. Standard library only."""

import json
import sys
from typing import Any

TOOL = {
    "name": "tell",
    "description": "Returns the metadata that came with the call, as JSON text, to follow traces by.",
    # Closed: whatever is not taken out on the way here refuses the call.
    "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
}

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method = message.get("method")
    answer: dict[str, Any] = {}
    if method == "initialize":
        answer = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "telling", "version": "1"},
        }
    elif method == "tools/list":
        answer = {"tools": [TOOL]}
    elif method == "tools/call":
        told = json.dumps(message["params"].get("_meta", {}))
        answer = {"content": [{"type": "text", "text": told}]}
    elif method == "server/discover":
        print(
            json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}}),
            flush=True,
        )
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer}), flush=True)
