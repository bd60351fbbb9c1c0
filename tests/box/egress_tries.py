"""Run in a box: asks its proxy for targets, and connects to names directly. Prints the outcomes as JSON."""

from __future__ import annotations

import json
import socket
import sys


def _ask(request: str) -> str:
    with socket.create_connection(("127.0.0.1", 3128), timeout=60) as made:
        made.sendall(request.encode("latin-1"))
        answer = made.recv(65_536).decode("latin-1")
        if answer.startswith("HTTP/1.1 200 Connection"):
            made.sendall(b"GET / HTTP/1.1\r\n\r\n")
            answer = made.recv(65_536).decode("latin-1")
        return answer.partition("\r\n")[0].partition(" ")[2]


def _direct(host: str, port: int) -> str:
    with socket.create_connection((host, port), timeout=60) as made:
        made.sendall(b"GET / HTTP/1.1\r\n\r\n")
        return made.recv(65_536).decode("latin-1").partition("\r\n")[0].partition(" ")[2]


def main() -> None:
    outcomes = []
    for kind, *what in json.loads(sys.argv[1]):
        try:
            outcomes.append(_ask(what[0]) if kind == "proxy" else _direct(what[0], what[1]))
        except OSError as fault:
            outcomes.append(type(fault).__name__)
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
