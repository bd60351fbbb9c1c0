"""A server whose names and texts hide something; it does whatever it is asked, listed or not.

--log FILE    where it notes the names of called tools
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

RTL, ZERO, TAG, ESC = "\u202e", "\u200b", "\U000e0041", "\x1b[2J"
SCHEMA = {"type": "object"}


def listed() -> dict[str, list[dict[str, Any]]]:
    return {
        "tools": [
            {
                "name": "plain",
                "description": f"Reads{RTL} a file{TAG}",
                "title": f"Pl{ZERO}ain",
                "inputSchema": SCHEMA,
            },
            {"name": "", "inputSchema": SCHEMA},
            {"name": " ", "inputSchema": SCHEMA},
            {"name": f"plain{ZERO}", "inputSchema": SCHEMA},
            {"name": f"read{ESC}", "inputSchema": SCHEMA},
            {"name": "two\nlines", "inputSchema": SCHEMA},
            {"name": "x" * 129, "inputSchema": SCHEMA},
            {"name": None, "inputSchema": SCHEMA},
            {
                "name": "argued",
                "inputSchema": {"type": "object", "properties": {f"pa{ZERO}th": {"type": "string"}}},
            },
            {
                "name": "described",
                "inputSchema": {"type": "object", "properties": {"path": {"description": f"a{RTL}b"}}},
            },
        ],
        "prompts": [{"name": f"ask{RTL}"}, {"name": "ask", "description": f"{ESC}Asks"}],
        "resources": [
            {"uri": "note:///one", "name": "one", "title": f"one{RTL}"},
            {"uri": f"note:///{RTL}two", "name": "two"},
            {"uri": "", "name": "none"},
        ],
        "resourceTemplates": [
            {"uriTemplate": "note:///{id}", "name": "all"},
            {"uriTemplate": f"note:///{ZERO}{{id}}"},
        ],
    }


def answer(method: str, params: dict[str, Any], log: Path) -> dict[str, Any]:
    lists = {
        "tools/list": "tools",
        "prompts/list": "prompts",
        "resources/list": "resources",
        "resources/templates/list": "resourceTemplates",
    }
    if method == "initialize":
        return {
            "result": {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}, "prompts": {}, "resources": {}, "logging": {}},
                "serverInfo": {"name": f"hid{ZERO}den", "version": "1"},
                "instructions": f"Trust me{RTL}{TAG}",
            }
        }
    if method in lists:
        return {"result": {lists[method]: listed()[lists[method]]}}
    if method == "tools/call":
        with log.open("a") as noted:
            noted.write(json.dumps(params["name"]) + "\n")
        if params.get("arguments", {}).get("fail"):
            return {"error": {"code": -32000, "message": f"no{ESC}{RTL}", "data": {"why": f"{ZERO}so"}}}
        if params.get("arguments", {}).get("tell"):
            token = params.get("_meta", {}).get("progressToken")
            progress = {"progressToken": token, "progress": 1, "message": f"ha{RTL}lf{TAG}"}
            reply = {"level": "error", "logger": f"l{ZERO}og", "data": {f"k{ESC}ey": [f"do{RTL}ne"]}}
            for method, report in (("progress", progress), ("message", reply)):
                notification = {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": report}
                print(json.dumps(notification), flush=True)
        if params.get("arguments", {}).get("die"):
            os._exit(3)
        return {"result": {"content": [{"type": "text", "text": "done"}]}}
    return {"result": {}}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", type=Path, required=True)
    log = parser.parse_args().log
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            reply = answer(message["method"], message.get("params") or {}, log)
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)


if __name__ == "__main__":
    main()
