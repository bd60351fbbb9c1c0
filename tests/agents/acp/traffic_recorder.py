"""A program between `moot acp` and an agent that writes down what both say.

    python traffic_recorder.py FILE COMMAND…

Every line becomes one line of FILE: `{"from": "client" or "agent", "message": …}`, in the order in which it
came. Nothing is changed on the way.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import IO, Any


def main(file: str, command: list[str]) -> int:
    lock = threading.Lock()
    record = open(file, "a", encoding="utf-8")  # noqa: SIM115  # until the process ends
    agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603

    def relay(sender: str, source: IO[bytes], target: IO[bytes]) -> None:
        for line in source:
            try:
                message: Any = json.loads(line)
            except ValueError:
                message = line.decode(errors="replace")
            with lock:
                record.write(json.dumps({"from": sender, "message": message}) + "\n")
                record.flush()
            try:
                target.write(line)
                target.flush()
            except OSError:
                return
        target.close()

    assert agent.stdin is not None
    assert agent.stdout is not None
    threading.Thread(target=relay, args=("client", sys.stdin.buffer, agent.stdin), daemon=True).start()
    relay("agent", agent.stdout, sys.stdout.buffer)
    return agent.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
