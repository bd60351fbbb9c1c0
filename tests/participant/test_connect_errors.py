"""No way into a space: each reason in words that say what to do, over real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from moot.errors import MootError, NotAdmitted, Unreachable, UsageError
from moot.participant import ParticipantLimits, connect
from moot.private_files import token_from
from tests.participant.gateway_with_members import gateway_with
from tests.waiting import HANG_SECONDS, bounded

ONE_TRY = ParticipantLimits(connect_seconds=0.0)
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.net.websocket_client.CONNECT_SECONDS", HANG_SECONDS)


async def refusal(
    url: str, space: str = "lab", token: str = "t", limits: ParticipantLimits = ONE_TRY
) -> MootError:
    """What joining raises."""
    with pytest.raises(MootError) as raised:
        async with connect(url, space, token, limits=limits):
            pass
    return raised.value


@asynccontextmanager
async def listening(answer: Answer) -> AsyncIterator[int]:
    """The port of something that is no gateway."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port: int = server.sockets[0].getsockname()[1]
        yield port


async def test_where_nobody_listens_it_says_how_to_start_a_gateway() -> None:
    with socket.socket() as taken:
        # Bound and not listened to: nobody else gets it meanwhile.
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        fault = await refusal(f"http://127.0.0.1:{port}")
    assert isinstance(fault, Unreachable)
    assert str(fault).startswith(f"http://127.0.0.1:{port} cannot be reached: connection refused")
    assert "`moot up`" in str(fault)
    assert "`moot serve`" in str(fault)


async def test_a_name_that_no_machine_has() -> None:
    fault = await refusal("http://nowhere.invalid:8080")
    assert "http://nowhere.invalid:8080 cannot be reached: unknown host" in str(fault)


async def test_a_name_that_no_machine_can_have() -> None:
    async with bounded():
        fault = await refusal("http://gateway..example:8080")
    assert "http://gateway..example:8080 cannot be reached: unknown host" in str(fault)


@pytest.mark.parametrize("token", ["two\nlines", "x\r\nX-Other: 1", "\ufefft", "\x00", "\ud800"])
async def test_a_token_that_no_header_can_carry(tmp_path: Path, token: str) -> None:
    """A line break began another header, and a lone surrogate was tried again until the time was over."""

    async def join(source: str | Callable[[], str]) -> None:
        async with bounded(), connect(gateway.url, "lab", source):
            pass

    async with gateway_with(tmp_path, alice=["*"]) as gateway:
        for source in (token, lambda: token):
            with pytest.raises(UsageError, match="line break or another character that cannot be sent"):
                await join(source)


async def test_tls_where_there_is_none(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"]) as gateway:
        fault = await refusal(gateway.url.replace("http://", "https://"))
    assert "does not use TLS" in str(fault)
    assert f"Try {gateway.url}, without the s" in str(fault)


async def test_another_web_server_is_no_gateway() -> None:
    async def page(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\nContent-Type: text/html\r\n\r\nnope!")
        await writer.drain()
        writer.close()

    async with listening(page) as port:
        fault = await refusal(f"http://127.0.0.1:{port}")
    assert f"http://127.0.0.1:{port} is not a gateway (HTTP 404)" in str(fault)


@pytest.mark.parametrize("greeting", [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.0 404 Not Found\r\n\r\n"])
async def test_something_else_on_that_port_is_no_gateway(greeting: bytes) -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await writer.drain()
        writer.close()

    async with listening(greet) as port:
        fault = await refusal(f"http://127.0.0.1:{port}")
    assert isinstance(fault, Unreachable)
    assert "Check the address" in str(fault)
    assert f"http://127.0.0.1:{port}" in str(fault)


async def test_something_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as silent:
        # The kernel takes the connection, and nobody ever reads from it.
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        # How long that takes changes nothing.
        monkeypatch.setattr("moot.net.websocket_client.CONNECT_SECONDS", 0.2)
        fault = await refusal(url)
    assert f"{url} cannot be reached: no answer in time" in str(fault)


async def test_a_gateway_that_says_no_is_quoted_with_its_address(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"]) as gateway:
        fault = await refusal(gateway.url, "lab", "t-nobody")
        assert isinstance(fault, NotAdmitted)
        assert f"check the token, or have another one made (HTTP 401 from {gateway.url}: " in str(fault)
        assert "reload" not in str(fault)
        # One that came from a file is named by that.
        file = tmp_path / "mine.token"
        file.write_text("t-nobody")
        file.chmod(0o600)
        for source in (token_from(file), lambda: token_from(file)):
            with pytest.raises(
                NotAdmitted, match=r"does not know the token in .*mine\.token: check the file"
            ):
                async with connect(gateway.url, "lab", source):
                    pass
        fault = await refusal(gateway.url, "elsewhere", "t-alice")
        assert "check the name of the space and the address (HTTP 404" in str(fault)
        assert "elsewhere" in str(fault)


async def test_an_address_without_a_scheme_is_offered_with_one() -> None:
    with pytest.raises(UsageError, match=r"did you mean http://localhost:8080\?"):
        async with connect("localhost:8080", "lab", "t"):
            pass
