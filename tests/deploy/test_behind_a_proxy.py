"""Console, SDK, commands and `moot mcp` through nginx and Caddy: TLS, WebSockets, a path in front."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import threading
from typing import Any

import httpx
import pytest
from mcp.client.stdio import stdio_client
from playwright.sync_api import expect

from mcp import ClientSession, StdioServerParameters
from moot.errors import Unreachable
from moot.participant import JoinedSpace, ParticipantLimits, connect
from tests.console.conftest import Watched, sign_in
from tests.console.gateway_and_members import Driven, Loop, gathered, offer_tools
from tests.deploy.conftest import Behind
from tests.waiting import HANG_SECONDS, until_seen


def tls(behind: Behind) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=behind.authority)


def moot(behind: Behind, name: str, *arguments: str, trusts: bool = True) -> subprocess.CompletedProcess[str]:
    """A command as somebody in front of the proxy types it."""
    command, environ = as_typed(behind, name, *arguments, trusts=trusts)
    return subprocess.run(  # noqa: S603  # our own line
        command, env=environ, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )


def as_typed(
    behind: Behind, name: str, *arguments: str, trusts: bool = True
) -> tuple[list[str], dict[str, str]]:
    token = behind.authority.with_name(f"{name}.token")
    token.write_text(behind.gateway.token(name))
    token.chmod(0o600)
    token.chmod(0o600)
    where = ["--gateway", behind.url, "--space", "lab", "--token-file", str(token)]
    environ = {"PATH": os.environ["PATH"], "HOME": str(behind.authority.parent)}
    if trusts:
        environ["SSL_CERT_FILE"] = str(behind.authority)
    first, *rest = arguments
    return [sys.executable, "-m", "moot.cli", first, *where, *rest], environ


def test_the_console_signs_in_speaks_hears_and_comes_back(behind: Behind, watched: Watched) -> None:
    page = watched.page(ignore_https_errors=True)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("websocket", lambda socket: asked.append(socket.url))
    # Without the slash: the proxy leads to it.
    page.goto(f"{behind.url}#/lab/chat")
    sign_in(page, "t-human", remember=True)
    assert page.url.startswith(f"{behind.url}/#")
    page.get_by_placeholder("Write a message").fill("through the proxy")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("log").get_by_text("through the proxy")).to_be_visible()
    output = moot(behind, "second", "send", "I hear you")
    assert output.returncode == 0, output.stderr
    expect(page.get_by_role("log").get_by_text("I hear you")).to_be_visible()
    # Tokens are kept for this path alone: another gateway may live beside it.
    assert page.evaluate("Object.keys(sessionStorage)") == ["moot.tokens /moot/"]
    page.reload()
    expect(page.locator(".top .pill")).to_have_text("Live")
    expect(page.get_by_role("log").get_by_text("I hear you")).to_be_visible()
    web, sockets = behind.url, behind.url.replace("https", "wss")
    assert all(
        address.startswith((f"{web}/", f"{sockets}/", f"{web}#")) for address in asked if address != web
    )
    assert f"{sockets}/ws?space=lab" in asked


def test_the_status_page_leads_on_under_the_path(behind: Behind, watched: Watched) -> None:
    page = watched.page(ignore_https_errors=True)
    page.goto(f"{behind.url}/status")
    page.get_by_role("link", name="/health").click()
    assert page.url == f"{behind.url}/health"
    expect(page.locator("body")).to_contain_text('"status":"ok"')


def test_the_sdk_talks_calls_and_catches_up(behind: Behind, loop: Loop) -> None:
    files, agent = Driven(loop, "files"), Driven(loop, "agent")
    try:
        files.enter(behind.url, "lab", "t-files", tls=tls(behind))
        files.run(offer_tools)
        agent.enter(behind.url.replace("https", "wss"), "lab", "t-agent", tls=tls(behind))
        received: list[str] = []
        agent.run(lambda space: _listen(space, received))
        files.run(lambda space: space.chat("over TLS"))
        assert gathered(received, 1) == ["over TLS"]
        # What was said before is fetched over HTTP, with the same trust and the same path.
        recalled = agent.run(lambda space: space.history())
        assert "over TLS" in [envelope.payload.get("text") for envelope in recalled]
    finally:
        files.leave()
        agent.leave()


def _listen(space: JoinedSpace, received: list[str]) -> None:
    @space.on("chat")
    def note(envelope: Any) -> None:
        received.append(envelope.payload["text"])


def test_commands_send_and_tail_and_an_unknown_authority_is_told_plainly(behind: Behind) -> None:
    command, environ = as_typed(behind, "watcher", "tail", "--json")
    tail = subprocess.Popen(  # noqa: S603  # our own line
        command, env=environ, stdout=subprocess.PIPE, text=True
    )
    # A tail that hears nothing must not be waited for for ever.
    watch = threading.Timer(HANG_SECONDS, tail.kill)
    watch.start()
    try:
        assert tail.stdout is not None
        # Tailing has begun when its own coming is known.
        until_seen(lambda: '"watcher"' in moot(behind, "human", "members", "--json").stdout)
        sent = moot(behind, "human", "send", "can you hear me")
        assert sent.returncode == 0, sent.stderr
        for line in tail.stdout:
            if "can you hear me" in line:
                break
        else:
            raise AssertionError("the tail ended without it")
    finally:
        watch.cancel()
        tail.terminate()
        tail.wait(HANG_SECONDS)
        assert tail.stdout is not None
        tail.stdout.close()
    refused = moot(behind, "human", "send", "hello", trusts=False)
    assert refused.returncode == 5
    assert "its certificate is not trusted" in refused.stderr
    assert "SSL_CERT_FILE=ca.pem" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_an_mcp_client_takes_part(behind: Behind, loop: Loop) -> None:
    command, environ = as_typed(behind, "human", "mcp")

    async def talk() -> list[str]:
        server = StdioServerParameters(command=command[0], args=command[1:], env=environ)
        async with (
            stdio_client(server) as (reading, writing),
            ClientSession(reading, writing) as client,
        ):
            await client.initialize()
            return [tool.name for tool in (await client.list_tools()).tools]

    assert loop.run(talk())


def test_the_proxy_keeps_figures_to_itself_and_other_names_out(behind: Behind) -> None:
    with httpx.Client(verify=tls(behind), trust_env=False, timeout=HANG_SECONDS) as client:
        assert client.get(f"{behind.url}/metrics").status_code == 404
        assert client.get(f"{behind.url}/readyz").json() == {"status": "ready"}
        redirect = client.get(behind.url)
        assert (redirect.status_code, redirect.headers["location"].endswith("/moot/")) == (308, True)
        token = {"Authorization": "Bearer t-human", "Content-Type": "application/json"}
        posted = client.post(
            f"{behind.url}/participants/human/messages?space=lab",
            headers=token,
            content=json.dumps({"kind": "chat", "payload": {"text": "by post"}}),
        )
        assert posted.status_code == 200, posted.text
        elsewhere = token | {"Origin": "https://evil.example"}
        assert client.get(f"{behind.url}/spaces", headers=elsewhere).status_code == 403
        too_large = client.post(
            f"{behind.url}/participants/human/messages?space=lab", headers=token, content=b"x" * (3 << 20)
        )
        # The gateway answers before all of it has come; to Caddy that may look like a broken connection.
        assert too_large.status_code in ((413,) if behind.proxy == "nginx" else (413, 502))


def test_a_certificate_of_nobody_known_is_refused_before_a_token_is_sent(behind: Behind, loop: Loop) -> None:
    async def enter() -> None:
        limits = ParticipantLimits(connect_seconds=0.1)
        async with connect(behind.url, "lab", "t-human", limits=limits):
            pass

    with pytest.raises(Unreachable, match="its certificate is not trusted"):
        loop.run(enter())
