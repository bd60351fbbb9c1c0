"""An MCP server that reads paths and connects to hosts, as its callers say. Only the standard library."""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any


def _reach(where: str) -> str:
    if where.startswith("/"):
        with open(where, encoding="utf-8") as file:
            return file.read()
    host, _, port = where.partition(":")
    with socket.create_connection(("127.0.0.1", 3128), timeout=60) as made:
        made.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n".encode())
        return made.recv(4_096).decode()


def _answer(method: str, params: Any) -> Any:
    if method == "initialize":
        info = {"name": "reaching", "version": "1"}
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": info,
        }
    if method == "tools/list":
        return {"tools": [{"name": "reach", "inputSchema": {"type": "object"}}]}
    try:
        found, failed = _reach(params["arguments"]["where"]), False
    except OSError as fault:
        found, failed = str(fault), True
        print(f"failed: {fault}", file=sys.stderr, flush=True)
    text = f"{found}\n{sorted(os.environ)}"
    return {"content": [{"type": "text", "text": text}], "isError": failed}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] in ("initialize", "tools/list", "tools/call"):
            answer["result"] = _answer(message["method"], message["params"])
            if message["params"].get("arguments", {}).get("fail"):
                answer["error"] = {"code": -32603, "message": "failed", "data": {"of": "it"}}
                del answer["result"]
        else:
            answer["error"] = {"code": -32601, "message": "unknown"}
        print(json.dumps(answer), flush=True)
