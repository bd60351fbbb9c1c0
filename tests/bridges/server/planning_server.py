"""An MCP server whose `deploy` is planned by `plan_deploy`; what is deployed stands in a file.

Calls are written beside it, one line each.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_STATE = Path(sys.argv[1])
_SCHEMA = {"type": "object"}
_READS = {"readOnlyHint": True}
TOOLS: list[dict[str, Any]] = [
    {"name": "deploy", "inputSchema": _SCHEMA, "_meta": {"moot/plan-tool": "plan_deploy"}},
    {"name": "plan_deploy", "inputSchema": _SCHEMA, "annotations": _READS},
    {"name": "drop", "inputSchema": _SCHEMA, "_meta": {"moot/plan-tool": "deploy"}},
]


def _call(params: dict[str, Any], number: int) -> dict[str, Any]:
    name, wanted = params["name"], params["arguments"].get("version", "")
    with _STATE.with_suffix(".calls").open("a") as calls:
        calls.write(json.dumps([name, params.get("_meta", {}).get("moot/plan-id")]) + "\n")
    if wanted == "broken":
        return {"content": [{"type": "text", "text": "no such version"}], "isError": True}
    now = _STATE.read_text()
    if name == "plan_deploy":
        text = f"replace {now} by {wanted}\nrestart 2 machines"
        return {"content": [{"type": "text", "text": text}], "_meta": {"moot/plan-id": f"plan-{number}"}}
    _STATE.write_text(wanted)
    return {"content": [{"type": "text", "text": f"{wanted} runs"}]}


for number, line in enumerate(sys.stdin if __name__ == "__main__" else ()):
    message = json.loads(line)
    result: dict[str, Any] = {}
    match message.get("method"):
        case "initialize":
            result = {"serverInfo": {"name": "planning", "version": "1"}, "capabilities": {"tools": {}}}
            result["protocolVersion"] = message["params"]["protocolVersion"]
        case "tools/list":
            result = {"tools": TOOLS}
        case "tools/call":
            result = _call(message["params"], number)
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
