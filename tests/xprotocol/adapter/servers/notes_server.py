"""An MCP server over stdio whose drawers the test fills: standard library only, so that it starts at once.

The folder that it is given holds `tools.json` (what it lists; read anew for every list, and a change is told)
and `notes/` (what its resources and `read_note` show). Every request that comes is noted in `requests.jsonl`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

Json = Any
FOLDER = Path(sys.argv[1])
_lock = threading.Lock()
_subscribed: set[str] = set()


def send(message: Json) -> None:
    line = json.dumps({"jsonrpc": "2.0"} | message) + "\n"
    with _lock:
        sys.stdout.write(line)
        sys.stdout.flush()


def text(words: str, **more: Json) -> Json:
    return {"content": [{"type": "text", "text": words}], "isError": False} | more


class Refused(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def call(name: str, arguments: Json) -> Json:
    match name:
        case "read_note":
            return text((FOLDER / "notes" / arguments["name"]).read_text())
        case "write_note":
            (FOLDER / "notes" / arguments["name"]).write_text(arguments["text"])
            return text("written")
        case "run_hang":
            time.sleep(3_600)
        case "run_die":
            os._exit(3)
        case "get_environment":
            return text(json.dumps({"argv": sys.argv[2:], "env": dict(os.environ)}))
        case "run_fail":
            raise Refused(int(arguments.get("code", -32000)), f"no luck with {os.environ.get('DESK_TOKEN')}")
        case "run_failing":
            return text("it did not work", isError=True)
        case "get_long":
            return text("x" * int(arguments["size"]))
        case "get_sum":
            return text("3", structuredContent={"sum": arguments["a"] + arguments["b"]})
        case "get_lie":
            return text("3", structuredContent={"sum": "three"})
        case "get_nonsense":
            return {"nothing": "of a result"}
        case "run_slow":
            time.sleep(float(arguments.get("seconds", 0)))
            # Until the test lets it go on, which it may never do.
            while "until" in arguments and not (FOLDER / arguments["until"]).exists():
                time.sleep(0.01)
            return text("done")
    if any(tool["name"] == name for tool in tools()):
        return text(json.dumps(arguments, sort_keys=True))
    raise Refused(-32602, f"Unknown tool: {name}")


def tools() -> list[Json]:
    found: list[Json] = json.loads((FOLDER / "tools.json").read_text())
    return found


def note_uris() -> list[Json]:
    return [
        {"uri": f"note:///{file.name}", "name": file.name, "mimeType": "text/plain"}
        for file in sorted((FOLDER / "notes").iterdir())
    ]


def read_note(uri: str) -> Json:
    file = FOLDER / "notes" / uri.removeprefix("note:///")
    if not file.is_file():
        raise Refused(-32002, "Resource not found")
    return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": file.read_text()}]}


def answer(method: str, params: Json) -> Json:
    subscribes = "--no-subscribe" not in sys.argv
    match method:
        case "initialize":
            return {
                "protocolVersion": "2025-06-18",
                "capabilities": {
                    "tools": {"listChanged": True},
                    "resources": {"subscribe": subscribes, "listChanged": True},
                    "prompts": {},
                },
                "serverInfo": {"name": "desk", "version": "1"},
            }
        case "ping":
            return {}
        case "tools/list":
            return {"tools": tools()}
        case "tools/call":
            return call(params["name"], params.get("arguments", {}))
        case "resources/list":
            return {"resources": note_uris()}
        case "resources/templates/list":
            return {"resourceTemplates": [{"uriTemplate": "note:///{name}", "name": "note"}]}
        case "resources/read":
            return read_note(params["uri"])
        case "resources/subscribe" if subscribes:
            _subscribed.add(params["uri"])
            return {}
        case "resources/unsubscribe" if subscribes:
            _subscribed.discard(params["uri"])
            return {}
        case "prompts/list":
            arguments = [{"name": "who", "description": "Whom to greet", "required": True}]
            about = "Get words of greeting for a person, for use when somebody new comes in"
            return {"prompts": [{"name": "greet", "description": about, "arguments": arguments}]}
        case "prompts/get":
            words = f"Greet {params.get('arguments', {}).get('who')} warmly."
            return {"messages": [{"role": "user", "content": {"type": "text", "text": words}}]}
    raise Refused(-32601, f"no such method: {method}")


def serve(message: Json) -> None:
    method, params = message["method"], message.get("params") or {}
    with _lock, (FOLDER / "requests.jsonl").open("a") as log:
        log.write(json.dumps({"method": method, "params": params}) + "\n")
    try:
        send({"id": message["id"], "result": answer(method, params)})
    except Refused as fault:
        send({"id": message["id"], "error": {"code": fault.code, "message": str(fault)}})
    except Exception as fault:  # noqa: BLE001  # a server answers, whatever happens
        send({"id": message["id"], "error": {"code": -32603, "message": repr(fault)}})


def watch() -> None:
    """Tell of what changes in the drawers."""
    before: dict[str, Json] = {}
    while True:
        now: dict[str, Json] = {"tools": (FOLDER / "tools.json").stat().st_mtime_ns}
        for file in (FOLDER / "notes").iterdir():
            # A new file each time: two changes may bear the same time.
            stat = file.stat()
            now[f"note:///{file.name}"] = (stat.st_mtime_ns, stat.st_ino)
        for name in now if before else ():
            if now[name] == before.get(name):
                continue
            if name == "tools":
                send({"method": "notifications/tools/list_changed"})
            elif name in _subscribed:
                send({"method": "notifications/resources/updated", "params": {"uri": name}})
        before = now
        time.sleep(0.02)


def main() -> None:
    if "--quiet" not in sys.argv:
        threading.Thread(target=watch, daemon=True).start()
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            threading.Thread(target=serve, args=(message,), daemon=True).start()


if __name__ == "__main__":
    main()
