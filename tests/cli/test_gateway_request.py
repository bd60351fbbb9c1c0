"""An answer that never ends does not fill the memory of whoever asked."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from moot.cli import main
from moot.cli.client.gateway_request import MAX_BYTES
from moot.cli.process.exit_codes import EXIT_OK


@contextmanager
def _endless_server() -> Iterator[str]:
    """Answers every request with spaces, until nobody reads them any more."""

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
            while True:
                connection.sendall(b" " * (1 << 16))

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("command", ["login", "cluster", "open"])
def test_an_answer_that_never_ends_is_given_up(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "token"
    token.write_text("t-root")
    token.chmod(0o600)
    with _endless_server() as url:
        words = ["login", url]
        if command == "cluster":
            words = ["cluster", "status", "--gateway", url, "--admin-token-file", str(token)]
        elif command == "open":
            words = ["open", "--print", "--gateway", url, "--space", "lab", "--token-file", str(token)]
        assert main(words) != EXIT_OK
    assert f"answers with more than {MAX_BYTES >> 20} MiB" in capsys.readouterr().err
