"""An MCP server over stdio that misbehaves as the tool that is called says: standard library only.

`requests.jsonl` in the folder that it is given holds the names of the tools that were called. A file
`list.json` there replaces its answer to `tools/list`, whatever stands in it; with `list.hangs` there is none.
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
# Tests read names from here, too, without being a server.
FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
MARK = "hush-hush-9137"
_lock = threading.Lock()

SHAPES: dict[str, Json] = {
    "get_null": None,
    "get_list": [],
    "get_text": "done",
    "get_number": 7,
    "get_nothing": {},
    "get_content_text": {"content": "done"},
    "get_content_null": {"content": None},
    "get_item_text": {"content": ["done"]},
    "get_item_strange": {"content": [{"type": "rumour", "text": MARK}]},
    "get_item_untyped": {"content": [{"text": "done"}]},
    "get_text_number": {"content": [{"type": "text", "text": 7}]},
    "get_image_junk": {"content": [{"type": "image", "data": "%%%", "mimeType": 7}]},
    "get_error_text": {"content": [], "isError": "perhaps"},
    "get_asking": {"resultType": "input_required", "requestState": MARK},
    "get_huge": {"content": [{"type": "text", "text": "x" * 3_000_000}]},
    "get_structured_list": {"content": [], "structuredContent": [1]},
}
LOUD = ("run_stdout", "run_stderr", "run_twice", "run_others", "run_no_json", "run_error_junk", "run_deep")
ENDS = ("run_exit", "run_half_a_line", "run_close_stdout")
TOOLS = [
    {
        "name": name,
        "description": f"Get {name} here. Use this when you need to see what {name} does to others.",
        "inputSchema": {"type": "object"},
    }
    for name in (*SHAPES, *LOUD, *ENDS)
]


def write(text: str) -> None:
    with _lock:
        sys.stdout.write(text)
        sys.stdout.flush()


def answer(message_id: Json, result: Json) -> None:
    write(json.dumps({"jsonrpc": "2.0", "id": message_id, "result": result}) + "\n")


def words(text: str) -> Json:
    return {"content": [{"type": "text", "text": text}]}


def call(message_id: Json, name: str) -> None:
    with _lock, (FOLDER / "requests.jsonl").open("a") as log:
        log.write(json.dumps(name) + "\n")
    match name:
        case "run_stdout":
            for _ in range(3_000):
                write("not a message at all " * 4 + "\n")
        case "run_stderr":
            for _ in range(3_000):
                sys.stderr.write(f"{MARK} \x1b[2J\x1b]0;owned\x07 " * 2 + "\n")
            sys.stderr.flush()
        case "run_twice":
            answer(message_id, words("first"))
            answer(message_id, words("second"))
            return
        case "run_others":
            # Answers to whatever else may be in progress, and to what nobody asked.
            for other in (-1, 0, *range(message_id + 1, message_id + 50), "1", None, [message_id], True):
                answer(other, words("not yours"))
        case "run_no_json":
            write('{"jsonrpc": "2.0", "id": ' + json.dumps(message_id) + ', "result": {"content": NaN,}}\n')
            return
        case "run_error_junk":
            error = {"code": "high", "message": {"a": [MARK]}, "data": "x" * 100_000}
            write(json.dumps({"jsonrpc": "2.0", "id": message_id, "error": error}) + "\n")
            return
        case "run_deep":
            nested = '{"a":' * 20_000 + "1" + "}" * 20_000
            write('{"jsonrpc":"2.0","id":' + json.dumps(message_id) + ',"result":' + nested + "}\n")
            return
        case "run_exit":
            os._exit(3)
        case "run_half_a_line":
            write('{"jsonrpc": "2.0", "id": ' + json.dumps(message_id) + ', "resu')
            os._exit(0)
        case "run_close_stdout":
            os.close(1)
            time.sleep(3_600)
        case _ if name in SHAPES:
            answer(message_id, SHAPES[name])
            return
    answer(message_id, words("done"))


def listed() -> Json:
    replaced = FOLDER / "list.json"
    return json.loads(replaced.read_text()) if replaced.exists() else {"tools": TOOLS}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        message_id, method = message.get("id"), message.get("method")
        if method == "initialize":
            about = {"protocolVersion": "2025-06-18", "serverInfo": {"name": "liar", "version": "1"}}
            answer(message_id, about | {"capabilities": {"tools": {"listChanged": True}}})
        elif method == "tools/list":
            if not (FOLDER / "list.hangs").exists():
                answer(message_id, listed())
        elif method == "tools/call":
            name = message["params"]["name"]
            threading.Thread(target=call, args=(message_id, name), daemon=True).start()
        elif message_id is not None:
            error = {"code": -32601, "message": "no such method"}
            write(json.dumps({"jsonrpc": "2.0", "id": message_id, "error": error}) + "\n")


if __name__ == "__main__":
    main()
