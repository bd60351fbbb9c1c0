"""Commands that ask a gateway over HTTP say why there is no connection as others do, and end with 5."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moot.cli import main
from tests.gateway.test_tls import secure_gateway
from tests.participant.gateway_with_members import gateway_with

# Each is given an address; {token} is a file.
OPEN = ("open", "--print", "--gateway", "{url}", "--token-file", "{token}")
MEMBER_TOKEN = ("member", "token", "--for", "1h", "--gateway", "{url}", "--token-file", "{token}")
OWN_TOKEN = ("member", "token", "--for", "1h", "--as", "alice", "--config", "other.yaml")
CLUSTER = ("cluster", "status", "--gateway", "{url}", "--admin-token-file", "{token}")
SEND = ("send", "hello", "--gateway", "{url}", "--token-file", "{token}")
LOGIN = ("login", "{url}")
CONFORMANCE = ("conformance", "{url}", "--token-file", "{token}")


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "nobody.token"
    file.write_text("t-nobody")
    file.chmod(0o600)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("MOOT_SIGN_INS", "file")
    for name in ("MOOT_URL", "MOOT_SPACE", "MOOT_TOKEN", "MOOT_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    return file


def run(command: tuple[str, ...], url: str, token: Path) -> int:
    return main([word.format(url=url, token=token) for word in command])


@contextmanager
def closed_port() -> Iterator[int]:
    """One that nobody listens on, and nobody else gets."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.mark.parametrize("command", [OPEN, MEMBER_TOKEN, CLUSTER, SEND, LOGIN, CONFORMANCE])
def test_where_nobody_listens_it_says_how_to_start_a_gateway(
    command: tuple[str, ...], token: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closed_port() as port:
        assert run(command, f"http://127.0.0.1:{port}", token) == 5
    said = capsys.readouterr().err
    assert f"http://127.0.0.1:{port}" in said
    assert "connection refused. No gateway runs there: start one with `moot up` or `moot serve`" in said


async def test_a_token_that_the_gateway_does_not_know(
    token: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with gateway_with(tmp_path, alice=["*"]) as gateway:
        port = gateway.url.rpartition(":")[2]
        participants = "{alice: {capabilities: ['*'], tokens: [t-nobody]}}"
        other = f"gateway: {{port: {port}}}\nspaces: {{lab: {{participants: {participants}}}}}\n"
        (tmp_path / "other.yaml").write_text(other)
        for command in (OPEN, MEMBER_TOKEN, OWN_TOKEN, SEND):
            assert await asyncio.to_thread(run, command, gateway.url, token) == 5
            said = capsys.readouterr().err
            # OWN_TOKEN takes that of a configuration.
            which = (
                "this token: check the" if command == OWN_TOKEN else f"the token in {token}: check the file"
            )
            assert f"the gateway does not know {which}" in said
            assert f"HTTP 401 from {gateway.url}" in said
        assert await asyncio.to_thread(run, CONFORMANCE, gateway.url, token) == 5


async def test_tls_where_it_is_not_expected_and_a_certificate_that_is_not_trusted(
    token: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with secure_gateway(tmp_path) as gateway:
        for command in (OPEN, CLUSTER, SEND, LOGIN):
            code = await asyncio.to_thread(run, command, f"https://127.0.0.1:{gateway.port}", token)
            said = capsys.readouterr().err
            assert code == 5, said
            assert "its certificate is not trusted" in said
            assert "SSL_CERT_FILE" in said
        for command in (SEND, OPEN, CLUSTER, LOGIN):
            assert await asyncio.to_thread(run, command, f"http://127.0.0.1:{gateway.port}", token) != 0
            assert "this port speaks TLS: use https://" in capsys.readouterr().err


def test_an_address_that_is_none_is_a_mistake_in_the_call(
    token: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for url in ("localhost:8080", "http://localhost:port"):
        assert run(OPEN, url, token) == 2
        assert "is no address of a gateway; one looks like http://localhost:8080" in capsys.readouterr().err


async def test_a_program_of_the_sdk_shows_one_short_error_where_nobody_listens(tmp_path: Path) -> None:
    """What was refused is in the last line, and none of our own modules but the one that was called."""
    with closed_port() as port:
        program = (
            "import asyncio\nfrom moot import connect\n\nasync def main():\n"
            f"    async with connect('http://127.0.0.1:{port}', 'lab', 'x'):\n        pass\n\n"
            "asyncio.run(main())\n"
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program,
            stderr=asyncio.subprocess.PIPE,
            cwd=tmp_path,
        )  # fmt: skip
        _, errors = await process.communicate()
    lines = errors.decode().splitlines()
    named = "moot.errors.taking_part.Unreachable"
    assert lines[-1].startswith(f"{named}: http://127.0.0.1:{port} cannot be reached: ")
    assert not [line for line in lines if "the direct cause of" in line]
    assert [line for line in lines if "/moot/" in line and "/participant/connect.py" not in line] == []
