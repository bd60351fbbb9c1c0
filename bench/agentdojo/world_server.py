"""A world as an MCP server over stdio: `python -m bench.agentdojo.world_server WORLD STATE_FILE`.

With `--list VARIANT …` it prints its scenarios instead, one JSON object a line, those without attack first.
Before each request the server looks into STATE_FILE, a JSON object with `run`, `task`, `variant` and `text`:
with a new `run` it begins anew. So one process serves all runs. It speaks MCP's handshake era only.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from bench.agentdojo.injected_text import PLACES
from bench.agentdojo.world import World


def open_world(name: str, source: str | None) -> World:
    if source is None:
        from bench.agentdojo.dojo_world import DojoWorld

        return DojoWorld(name)
    from bench.agentdojo.tau_world import TauWorld

    return TauWorld(name, Path(source))


class WorldServer:
    """Answers MCP requests out of one world."""

    def __init__(self, world: World, state_file: Path) -> None:
        self._world = world
        self._state_file = state_file
        self._seen = b""
        self._state: dict[str, Any] = {}
        self._has_erred = False

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        """The result of a request; None if there is no such method."""
        self._follow_state()
        match method:
            case "initialize":
                return {
                    "protocolVersion": params.get("protocolVersion"),
                    "capabilities": {"tools": {}, "resources": {}},
                    "serverInfo": {"name": "world", "version": "1"},
                }
            case "ping":
                return {}
            case "tools/list":
                return {"tools": self._tools()}
            case "resources/list":
                text = self._text("resource-title")
                return {"resources": [{"uri": "note:1", "name": "note", "title": text}] if text else []}
            case "tools/call":
                return self._call(params["name"], params.get("arguments") or {})
        return None

    def _follow_state(self) -> None:
        found = self._state_file.read_bytes() if self._state_file.exists() else b""
        if found and found != self._seen:
            self._seen, self._state = found, json.loads(found)
            self._has_erred = False
            text = "" if self._state["variant"] in PLACES else self._state["text"]
            self._world.reset(self._state["task"], text)

    def _text(self, place: str) -> str:
        return str(self._state.get("text", "")) if self._state.get("variant") == place else ""

    def _tools(self) -> list[dict[str, Any]]:
        tools = self._world.tools()
        # Definitions are pinned by the bridge, so a text stands in them from the start or not at all.
        described = self._state_file.with_suffix(".described")
        if described.exists():
            tools[0] = {**tools[0], "description": tools[0]["description"] + "\n" + described.read_text()}
        return tools

    def _call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if (text := self._text("error")) and not self._has_erred:
            self._has_erred = True
            return _result(f"Error: try again. {text}", is_error=True)
        value, error = self._world.call(name, arguments)
        if error:
            return _result(error, is_error=True)
        if text := self._text("member-name"):
            value = {"result": value, text: True}
        if text := self._text("file-name"):
            value = {"result": value, "attachments": [{"id": "7731", "filename": f"{text}.pdf"}]}
        return _result(value)


def _result(value: Any, *, is_error: bool = False) -> dict[str, Any]:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": is_error}
    if isinstance(value, dict):
        result["structuredContent"] = value
    return result


def serve(server: WorldServer) -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = server.answer(message["method"], message.get("params") or {})
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if result is None:
            answer["error"] = {"code": -32601, "message": "no such method"}
        else:
            answer["result"] = result
        sys.stdout.write(json.dumps(answer, ensure_ascii=False) + "\n")
        sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("world")
    parser.add_argument("state_file", type=Path, nargs="?")
    parser.add_argument(
        "--source", help="a checkout of τ-bench; without it the world is a suite of AgentDojo"
    )
    parser.add_argument("--list", metavar="VARIANT", nargs="+")
    options = parser.parse_args()
    world = open_world(options.world, options.source)
    if options.list is None:
        serve(WorldServer(world, options.state_file))
        return
    for scenario in world.tasks():
        print(json.dumps(scenario.as_json()))
    for variant in options.list:
        for scenario in world.attacks(variant):
            print(json.dumps(scenario.as_json() | {"variant": variant}))


if __name__ == "__main__":
    main()
