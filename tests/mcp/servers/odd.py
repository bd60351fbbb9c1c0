"""An MCP server over stdio that does whatever it is told, the wrong things first. Standard library only.

It is written against the wire and not with an SDK, because no SDK would let it misbehave so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

Json = Any
_lock = threading.Lock()
_answers: dict[Json, tuple[threading.Event, list[Json]]] = {}
_cancelled: list[Json] = []
_notified: list[Json] = []
_subscribed: list[str] = []
_levels: list[str] = []
_streams: list[Json] = []
_listened: list[Json] = []
_description = "first"
_calls = 0
_asked = 0


def write(text: str) -> None:
    with _lock:
        sys.stdout.write(text)
        sys.stdout.flush()


def send(message: Json) -> None:
    write(json.dumps({"jsonrpc": "2.0"} | message, separators=(",", ":"), ensure_ascii=False) + "\n")


def text(value: Json) -> Json:
    shown = value if isinstance(value, str) else json.dumps(value)
    return {"content": [{"type": "text", "text": shown}], "isError": False}


def ask(method: str, params: Json) -> Json:
    """Ask the client and wait: its result, or its error."""
    global _asked
    with _lock:
        _asked += 1
        id = f"ask-{_asked}"
    answered = (threading.Event(), [])  # type: tuple[threading.Event, list[Json]]
    _answers[id] = answered
    send({"id": id, "method": method, "params": params})
    answered[0].wait(30)
    return answered[1][0] if answered[1] else None


def question(number: int = 1) -> Json:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    return {"message": f"Who are you? ({number})", "requestedSchema": schema}


# Tools: (id of the request, arguments, params) → result, or None when they answer themselves or not at all.


def echo(_id: Json, arguments: Json, params: Json) -> Json:
    result = text("echo") | {"structuredContent": arguments, "vendor/field": {"kept": [1, 2.5, None, "ü"]}}
    return result | {"big": 2**70, "_meta": {"seen": params.get("_meta"), "also": True}}


def hang(_id: Json, arguments: Json, _params: Json) -> None:
    time.sleep(arguments.get("seconds", 3600))


def freeze(_id: Json, _arguments: Json, _params: Json) -> None:
    """Nothing is said or read any more."""
    _lock.acquire()


def die(_id: Json, arguments: Json, _params: Json) -> None:
    print("last words on stderr", file=sys.stderr, flush=True)
    os._exit(arguments.get("code", 3))


def garbage(id: Json, _arguments: Json, _params: Json) -> None:
    write(f'{{"jsonrpc":"2.0","id":{id},"result":{{"content":[\n')


def garbage_last(id: Json, _arguments: Json, _params: Json) -> None:
    write(f'{{"result":{{"content":[}}}},"jsonrpc":"2.0","id":{id}}}\n')


def duplicate(id: Json, _arguments: Json, _params: Json) -> None:
    write(f'{{"jsonrpc":"2.0","id":{id},"result":{{"a":1,"a":2}}}}\n')


def nothing(id: Json, _arguments: Json, _params: Json) -> None:
    send({"id": id})


def wrong_type(id: Json, _arguments: Json, _params: Json) -> None:
    send({"id": id, "result": [1]})


def strange_error(id: Json, _arguments: Json, _params: Json) -> None:
    send({"id": id, "error": {"code": "x"}})


def refuse(id: Json, _arguments: Json, _params: Json) -> None:
    send({"id": id, "error": {"code": -32050, "message": "no", "data": {"why": ["because"]}}})


def stranger(id: Json, _arguments: Json, _params: Json) -> Json:
    send({"id": id + 1000, "result": {}})
    return text("mine")


def deep(_id: Json, arguments: Json, _params: Json) -> Json:
    value: Json = "bottom"
    for _ in range(arguments.get("levels", 100)):
        value = [value]
    return {"content": [], "structuredContent": {"value": value}}


def huge(_id: Json, arguments: Json, _params: Json) -> Json:
    return text("x" * arguments["size"])


def junk(_id: Json, arguments: Json, _params: Json) -> Json:
    for number in range(arguments.get("lines", 3)):
        write(f"debug: line {number} of somebody's print\n")
    write('\n\n"text"\n[1]\nnull\n')
    sys.stdout.buffer.write(b"\xff\xfe\x00 no text at all\n")
    sys.stdout.buffer.flush()
    return text("after the junk")


def flood(_id: Json, arguments: Json, params: Json) -> Json:
    """Notifications without end, or so many."""
    token = (params.get("_meta") or {}).get("progressToken", "none")
    kinds: list[Json] = [
        {"method": "notifications/message", "params": {"level": "info", "data": "x" * 100}},
        {"method": "notifications/tools/list_changed"},
        {"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}},
        {"method": "notifications/resources/updated", "params": {"uri": "odd://a"}},
        {"method": "vendor/noise", "params": {}},
    ]
    for number in range(arguments.get("count", 10**9)):
        send(kinds[number % len(kinds)])
    return text("done")


def flood_lines(_id: Json, _arguments: Json, _params: Json) -> None:
    while True:
        write("junk without end\n" * 1000)


def flood_one_line(_id: Json, _arguments: Json, _params: Json) -> None:
    while True:
        write("{" * 65536)


def flood_stderr(_id: Json, arguments: Json, _params: Json) -> Json:
    for _ in range(arguments.get("count", 100)):
        sys.stderr.write("e" * 100_000 + "\n")
    sys.stderr.flush()
    return text("said")


def change(_id: Json, arguments: Json, _params: Json) -> Json:
    global _description
    _description = arguments.get("to", "second")
    if arguments.get("tell", True):
        send({"method": "notifications/tools/list_changed"})
    return text(_description)


def ask_name(_id: Json, arguments: Json, _params: Json) -> Json:
    count = arguments.get("count", 1)
    answers: list[Json] = [None] * count

    def one(place: int) -> None:
        answers[place] = ask(arguments.get("method", "elicitation/create"), question(place + 1))

    threads = [threading.Thread(target=one, args=(place,), daemon=True) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return text(answers)


def progress(_id: Json, arguments: Json, params: Json) -> Json:
    token = (params.get("_meta") or {}).get("progressToken")
    steps = arguments.get("steps", 3)
    for step in range(1, steps + 1):
        if token is not None:
            body = {"progressToken": token, "progress": step, "total": steps, "vendor": step}
            send({"method": "notifications/progress", "params": body})
        time.sleep(arguments.get("pause", 0))
    return text("done")


def log(_id: Json, _arguments: Json, _params: Json) -> Json:
    for level in ("debug", "info", "warning", "error"):
        send({"method": "notifications/message", "params": {"level": level, "data": {"said": level}}})
    return text("logged")


def spawn(_id: Json, _arguments: Json, _params: Json) -> Json:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    return text(str(child.pid))


def told(_id: Json, _arguments: Json, _params: Json) -> Json:
    """What this server was told so far."""
    seen: Json = {
        "cancelled": _cancelled,
        "notified": _notified,
        "subscribed": _subscribed,
        "levels": _levels,
    }
    seen |= {"listened": _listened, "streams": len(_streams)}
    return text(seen | {"pid": os.getpid(), "calls": _calls, "env": dict(os.environ), "cwd": os.getcwd()})


def update(_id: Json, arguments: Json, _params: Json) -> Json:
    send({"method": "notifications/resources/updated", "params": {"uri": arguments["uri"], "vendor": 1}})
    return text("updated")


def withdraw(_id: Json, _arguments: Json, _params: Json) -> Json:
    """Ask something, and take it back before anyone answers."""
    asked = {"jsonrpc": "2.0", "id": "taken-back", "method": "elicitation/create", "params": question(9)}
    back = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "taken-back"}}
    # In one go, so that both are read at once.
    write(f"{json.dumps(asked)}\n{json.dumps(back)}\n")
    return ask_name(_id, {}, {})


def end_stream(_id: Json, arguments: Json, _params: Json) -> Json:
    """End every open subscription, in one way or the other."""
    for stream in list(_streams):
        _streams.remove(stream)
        if arguments.get("how") == "cancel":
            send({"method": "notifications/cancelled", "params": {"requestId": stream}})
        else:
            send({"id": stream, "result": {"resultType": "complete"}})
    return text("ended")


def listen(id: Json, params: Json, options: argparse.Namespace) -> None:
    """`subscriptions/listen` of the stateless era."""
    wanted = params["notifications"]
    _listened.append(wanted)
    if options.listen == "refuse":
        send({"id": id, "error": {"code": -32601, "message": "Method not found"}})
        return
    honoured = dict(wanted)
    if options.listen == "lists-only":
        honoured.pop("resourceSubscriptions", None)
    _streams.append(id)
    body = {"notifications": honoured, "_meta": {"io.modelcontextprotocol/subscriptionId": id}}
    send({"method": "notifications/subscriptions/acknowledged", "params": body})


def sleep(_id: Json, arguments: Json, _params: Json) -> Json:
    time.sleep(arguments.get("seconds", 0.1))
    return text("slept")


TOOLS: dict[str, Callable[[Json, Json, Json], Json]] = {
    each.__name__: each
    for each in (
        echo, hang, freeze, die, garbage, garbage_last, duplicate, nothing, wrong_type, strange_error, refuse,
        stranger, deep, huge, junk, flood, flood_lines, flood_one_line, flood_stderr, change, ask_name,
        progress, log, spawn, told, update, withdraw, end_stream, sleep,
    )
}  # fmt: skip


def definitions() -> list[Json]:
    schema = {"type": "object"}
    return [
        {
            "name": name,
            "description": _description if name == "echo" else name,
            "inputSchema": schema,
            "vendor": 1,
        }
        for name in TOOLS
    ]


def call(id: Json, params: Json) -> None:
    global _calls
    _calls += 1
    result = TOOLS[params["name"]](id, params.get("arguments") or {}, params)
    if result is not None:
        send({"id": id, "result": result})


def answer(id: Json, method: str, params: Json, options: argparse.Namespace) -> None:
    features: Json = {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "logging": {}}
    if options.no_features:
        features = {}
    if options.stateless and method == "server/discover":
        send(
            {
                "id": id,
                "result": {"supportedVersions": options.stateless.split(","), "capabilities": features},
            }
        )
    elif options.stateless and method == "initialize":
        supported = {"supported": options.stateless.split(","), "requested": params["protocolVersion"]}
        send({"id": id, "error": {"code": -32022, "message": "Unsupported version", "data": supported}})
    elif method == "subscriptions/listen":
        listen(id, params, options)
    elif method == "initialize":
        info = {"name": "odd", "version": "1", "vendor": True}
        body = {"protocolVersion": options.version, "capabilities": features, "serverInfo": info}
        send({"id": id, "result": body | {"instructions": "be careful"}})
    elif method == "tools/list":
        page = int(params.get("cursor") or 0)
        found = definitions()[page * 20 : page * 20 + 20]
        send({"id": id, "result": {"tools": found} | ({"nextCursor": str(page + 1)} if page == 0 else {})})
    elif method == "tools/call" and params.get("name") in TOOLS:
        threading.Thread(target=call, args=(id, params), daemon=True).start()
    elif method == "resources/subscribe":
        _subscribed.append(params["uri"])
        send({"id": id, "result": {}})
    elif method == "resources/unsubscribe":
        _subscribed.remove(params["uri"])
        send({"id": id, "result": {}})
    elif method == "logging/setLevel":
        _levels.append(params["level"])
        send({"id": id, "result": {}})
    elif method == "ping":
        send({"id": id, "result": {}})
    elif method == "server/discover" and options.on_probe == "exit":
        os._exit(1)
    elif method == "server/discover" and options.on_probe == "silence":
        return
    else:
        send({"id": id, "error": {"code": -32601, "message": f"Method not found: {method}"}})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", default="2025-06-18")
    parser.add_argument("--on-probe", default="error")
    parser.add_argument("--greeting", default="")
    parser.add_argument("--die-at-start", type=int)
    parser.add_argument("--die-once", help="a file: absent, it is made and the server dies")
    parser.add_argument("--linger", action="store_true", help="go on after stdin has ended, deaf to SIGTERM")
    parser.add_argument("--stateless", help="be of the stateless era, with these versions")
    parser.add_argument("--listen", default="all", help="what of subscriptions/listen is honoured")
    parser.add_argument("--slow", type=float, default=0, help="seconds before anything is read")
    parser.add_argument("--no-features", action="store_true", help="declare no capabilities")
    options = parser.parse_args()
    time.sleep(options.slow)
    if options.greeting:
        write(options.greeting + "\n")
    if options.die_at_start is not None:
        print("cannot open \x1b[31mthe door\x1b[0m", file=sys.stderr, flush=True)
        os._exit(options.die_at_start)
    if options.die_once and not os.path.exists(options.die_once):
        open(options.die_once, "w").close()
        os._exit(7)
    if options.linger:
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        message = json.loads(line)
        if "method" not in message:
            event, into = _answers.pop(message["id"])
            into.append(message.get("result", message.get("error")))
            event.set()
        elif "id" in message:
            answer(message["id"], message["method"], message.get("params") or {}, options)
        elif message["method"] == "notifications/cancelled":
            _cancelled.append(message["params"])
            if message["params"]["requestId"] in _streams:
                _streams.remove(message["params"]["requestId"])
        else:
            _notified.append(message["method"])
    if options.linger:
        time.sleep(300)
    os._exit(0)


if __name__ == "__main__":
    main()
