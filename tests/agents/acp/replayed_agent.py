"""A recording of a real agent, played to a client.

    python replayed_agent.py RECORDING FOLDER NAME

What the agent said is said again in the same order, with `{work}` as FOLDER; what the client said then is
waited for now: the same request, and to a request of the agent the same answer. Ids of the client are taken
over. When all was said, there is a file `played` beside FOLDER. A client that answers otherwise is told so on
stderr, and the process ends with status 3. NAME is the program that was recorded, for the client to know the
agent by.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


class Replay:
    """One recording, and what the client has said that is not part of it yet."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._waiting: list[dict[str, Any]] = []
        # Ids of requests of the client: as recorded, and as they are now.
        self._ids: dict[Any, Any] = {}

    def play(self, recording: list[dict[str, Any]]) -> None:
        for line in recording:
            if line["from"] == "agent":
                self._say(line["message"])
            else:
                self._expect(line["message"])

    def _say(self, message: Any) -> None:
        if isinstance(message, dict) and "method" not in message:
            message = message | {"id": self._ids[message["id"]]}
        text = message if isinstance(message, str) else json.dumps(message).replace("{work}", self._folder)
        sys.stdout.write(text.rstrip("\n") + "\n")
        sys.stdout.flush()

    def _expect(self, recorded: dict[str, Any]) -> None:
        for number, message in enumerate(self._waiting):
            if self._is_same(recorded, message):
                del self._waiting[number]
                break
        else:
            message = self._read(recorded)
        if "method" in recorded and "id" in recorded:
            self._ids[recorded["id"]] = message["id"]

    def _read(self, recorded: dict[str, Any]) -> dict[str, Any]:
        while line := sys.stdin.readline():
            message: dict[str, Any] = json.loads(line)
            if self._is_same(recorded, message):
                return message
            self._waiting.append(message)
            if "method" not in message:
                sys.stderr.write(f"another answer than {recorded}: {message}\n")
                sys.exit(3)
        sys.exit(0)

    def _is_same(self, recorded: dict[str, Any], message: dict[str, Any]) -> bool:
        if "method" in recorded:
            return bool(recorded["method"] == message.get("method"))
        given = {name: message.get(name) for name in ("id", "result", "error")}
        return given == {name: recorded.get(name) for name in given}


if __name__ == "__main__":
    lines = Path(sys.argv[1]).read_text().splitlines()
    Replay(sys.argv[2]).play([json.loads(line) for line in lines])
    Path(sys.argv[2]).with_name("played").touch()
    # Until the client has enough.
    sys.stdin.read()
