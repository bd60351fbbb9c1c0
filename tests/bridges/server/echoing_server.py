"""An MCP server that gives back what it is called with, where and how its callers say."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "inside base64": lambda text: base64.b64encode(f"user:{text}:x".encode()).decode(),
    "percent": lambda text: quote(text, safe=""),
    "hex": lambda text: text.encode().hex(),
    "json": lambda text: json.dumps(text),
    "reversed": lambda text: text[::-1],
}


def _say(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def _use(id: Any, params: dict[str, Any]) -> None:
    given = params["arguments"]
    text = f"before {FORMS[given['form']](given['key'])} after"
    match given["place"]:
        case "error":
            return _say({"id": id, "error": {"code": -32603, "message": text, "data": {text: [text]}}})
        case "progress":
            token = params.get("_meta", {}).get("progressToken", "none")
            progress = {"progressToken": token, "progress": 1, "message": text}
            _say({"method": "notifications/progress", "params": progress})
        case "log":
            _say({"method": "notifications/message", "params": {"level": "error", "data": text}})
        case "stderr":
            print(text, file=sys.stderr, flush=True)
    large = text * 20_000 if given["place"] == "large" else text
    result: dict[str, Any] = {
        "content": [{"type": "text", "text": large}],
        "isError": given["place"] == "failed",
    }
    if given["place"] == "structured":
        result |= {"structuredContent": {text: text}, "_meta": {"x": text}}
    return _say({"id": id, "result": result})


for line in sys.stdin if __name__ == "__main__" else ():
    message = json.loads(line)
    if message.get("method") == "initialize":
        about = {
            "serverInfo": {"name": "echoing", "version": "1"},
            "capabilities": {"tools": {}, "logging": {}},
        }
        _say(
            {"id": message["id"], "result": about | {"protocolVersion": message["params"]["protocolVersion"]}}
        )
    elif message.get("method") == "tools/list":
        _say({"id": message["id"], "result": {"tools": [{"name": "use", "inputSchema": {"type": "object"}}]}})
    elif message.get("method") == "tools/call":
        _use(message["id"], message["params"])
    elif "id" in message:
        _say({"id": message["id"], "result": {}})
