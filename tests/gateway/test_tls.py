"""TLS on the gateway's port: https and wss, certificates that are renewed or wrong, and who is let in."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from moot.cli import main
from moot.cli.options.tls_options import tls_files_of
from moot.config import load
from moot.errors import UsageError
from moot.gateway.app import Gateway
from moot.net.http_listener import bind_socket, serve_http
from moot.net.server_tls import ServerTls, TlsFiles
from moot.participant import connect as join_space
from moot.xprotocol.relay.relay_server import open_relay
from moot.xprotocol.relay.relay_settings import RelaySettings
from tests.authority import Authority
from tests.config.former_constants import former_constants
from tests.gateway.running_gateway import gateway_settings, participants, space_settings, write_config
from tests.waiting import HANG_SECONDS, bounded, until


def pair(folder: Path, authority: Authority, name: str = "server", **options: Any) -> tuple[Path, Path]:
    certificate, key = authority.issue(name, **options)
    key.chmod(0o600)
    return certificate, key


@asynccontextmanager
async def secure_gateway(folder: Path, **tls: Any) -> AsyncIterator[Gateway]:
    authority = Authority(folder, "ca")
    certificate, key = pair(folder, authority)
    settings = gateway_settings(
        {"lab": space_settings(participants(alice=["*"]))},
        tls={"certificate": str(certificate), "key": str(key)} | tls,
    )
    file = write_config(folder, settings)
    gateway = Gateway(load(file, environ={}))
    with former_constants(file):
        await gateway.start()
        try:
            yield gateway
        finally:
            await gateway.stop()


def trusting(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(folder / "ca.pem"))


def served_certificate(port: int, folder: Path) -> bytes | None:
    with (
        socket.create_connection(("127.0.0.1", port), timeout=HANG_SECONDS) as raw,
        trusting(folder).wrap_socket(raw, server_hostname="127.0.0.1") as secured,
    ):
        return secured.getpeercert(binary_form=True)


async def test_https_and_wss_are_served_on_the_port_and_plain_http_only_on_loopback(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path) as gateway:
        assert gateway.url.startswith("https://")
        async with httpx.AsyncClient(
            verify=trusting(tmp_path), trust_env=False, timeout=HANG_SECONDS
        ) as http:
            health = await http.get(f"{gateway.url}/health")
            assert health.json()["status"] == "ok"
            page = await http.get(f"{gateway.url}/")
            assert "<html" in page.text
            assert page.headers["Strict-Transport-Security"].startswith("max-age=")
            same = await http.get(f"{gateway.url}/health", headers={"Origin": gateway.url})
            assert same.status_code == 200
            # As a browser without https:// gets it, with a body that is larger than one packet too.
            plain = f"http://127.0.0.1:{gateway.port}/participants/alice/messages"
            for answer in (await http.get(plain), await http.post(plain, content=b" " * 50_000)):
                assert (answer.status_code, answer.json()["error"]) == (400, "tls_required")
                assert "https://" in answer.json()["message"]
            assert gateway.addresses.local_url is not None
            assert (await http.get(f"{gateway.addresses.local_url}/health")).status_code == 200
        async with bounded(), join_space(gateway.url, "lab", "t-alice", tls=trusting(tmp_path)) as space:
            await space.chat("over TLS")
            async with join_space(gateway.addresses.local_url, "lab", "t-alice") as beside:
                assert beside.me == "alice"


async def test_a_sign_in_link_opens_on_this_machine_without_a_certificate(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path) as gateway:
        page, _, code = (await gateway.make_sign_in_link("t-alice")).partition("/#sign-in=")
        assert page == gateway.addresses.local_url
        async with httpx.AsyncClient(trust_env=False, timeout=HANG_SECONDS) as client:
            redeemed = await client.post(f"{page}/sign-in-links/redeem", json={"code": code})
        assert redeemed.json() == {"token": "t-alice"}


async def test_refusals_and_closes_are_told_over_tls_and_the_connection_ends(tmp_path: Path) -> None:
    """TLS cannot close one direction: the answer has to arrive all the same."""
    async with secure_gateway(tmp_path, check_seconds=3600) as gateway:
        where = f"wss://127.0.0.1:{gateway.port}/ws?space=lab"
        with pytest.raises(InvalidStatus) as refused:
            async with bounded():
                await connect(where, ssl=trusting(tmp_path), additional_headers={"Authorization": "Bearer x"})
        assert refused.value.response.status_code == 401
        assert b"unknown token" in (refused.value.response.body or b"")
        async with bounded(), connect(where, ssl=trusting(tmp_path)) as stranger:
            await stranger.send('{"type":"join","space":"lab","token":"wrong"}')
            assert "unknown token" in json.loads(await stranger.recv())["payload"]["message"]
            await stranger.wait_closed()
            assert stranger.close_code == 1008


async def test_a_renewed_certificate_is_served_to_new_connections_and_open_ones_stay(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path, check_seconds=0.02) as gateway:
        before = await asyncio.to_thread(served_certificate, gateway.port, tmp_path)
        where = f"wss://127.0.0.1:{gateway.port}/ws?space=lab"
        headers = {"Authorization": "Bearer t-alice"}
        async with bounded(), connect(where, ssl=trusting(tmp_path), additional_headers=headers) as open_one:
            await open_one.recv()
            authority = _same_authority(tmp_path)
            new, key = pair(tmp_path, authority, "next")
            # One file first, as a renewal does: the pair does not fit, and the earlier one is served.
            shutil.copy(key, tmp_path / "server.key.new")
            os.replace(tmp_path / "server.key.new", tmp_path / "server.key")
            tls = gateway._tls
            assert tls is not None
            inode = (tmp_path / "server.key").stat().st_ino
            await until(lambda: tls._seen[1] is not None and tls._seen[1][1] == inode)
            assert await asyncio.to_thread(served_certificate, gateway.port, tmp_path) == before
            shutil.copy(new, tmp_path / "server.crt")
            context = tls.context
            await until(lambda: tls.context is not context)
            after = await asyncio.to_thread(served_certificate, gateway.port, tmp_path)
            assert after is not None
            assert after != before
            await open_one.send(json.dumps({"id": "e-1", "kind": "chat", "payload": {"text": "still here"}}))
            while json.loads(await open_one.recv())["id"] != "e-1":
                pass


async def test_reloading_takes_another_certificate_over_at_once_and_keeps_the_earlier_of_a_bad_one(
    tmp_path: Path,
) -> None:
    async with secure_gateway(tmp_path, check_seconds=3600) as gateway:
        before = await asyncio.to_thread(served_certificate, gateway.port, tmp_path)
        certificate, key = pair(tmp_path, _same_authority(tmp_path), "other")

        def settings(certificate: Path) -> Any:
            tls = {"certificate": str(certificate), "key": str(key), "check_seconds": 3600}
            lab = {"lab": space_settings(participants(alice=["*"]))}
            return load(write_config(tmp_path, gateway_settings(lab, tls=tls)), environ={})

        notes = gateway.reload(settings(tmp_path / "server.crt"))
        assert any(
            "the certificate stays as it was" in note and "another certificate" in note for note in notes
        )
        assert await asyncio.to_thread(served_certificate, gateway.port, tmp_path) == before
        assert gateway.reload(settings(certificate)) == []
        assert await asyncio.to_thread(served_certificate, gateway.port, tmp_path) != before


async def test_with_client_ca_only_holders_of_a_certificate_connect(tmp_path: Path) -> None:
    clients = Authority(tmp_path, "clients")
    strangers = Authority(tmp_path, "strangers")
    async with secure_gateway(tmp_path, client_ca=str(clients.file)) as gateway:

        async def health(who: tuple[Path, Path] | None) -> int:
            context = trusting(tmp_path)
            if who is not None:
                context.load_cert_chain(*who)
            async with httpx.AsyncClient(verify=context, trust_env=False, timeout=HANG_SECONDS) as http:
                return (await http.get(f"{gateway.url}/health")).status_code

        assert await health(clients.issue("laptop")) == 200
        with pytest.raises(httpx.TransportError):
            await health(None)
        with pytest.raises(httpx.TransportError):
            await health(strangers.issue("thief"))


async def test_whoever_connects_and_never_shakes_hands_is_counted_and_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop's own TLS would count such connections only after the handshake."""
    authority = Authority(tmp_path, "ca")
    certificate, key = pair(tmp_path, authority)
    settings = gateway_settings(
        {"lab": space_settings(participants(alice=["*"]))},
        tls={"certificate": str(certificate), "key": str(key)},
        max_connections_per_address=3,
    )
    gateway = Gateway(load(write_config(tmp_path, settings), environ={}))
    await gateway.start()
    try:
        # Told in plain HTTP, and counted no longer: there is room for three that say nothing.
        for _ in range(4):
            asked, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            async with bounded():
                assert (await asked.read()).startswith(b"HTTP/1.1 400 ")
            writer.close()
            await until(lambda: "\nmoot_connections 0" in gateway.measures.registry.exposition())
        with monkeypatch.context() as only_these:
            only_these.setattr("moot.net.http_protocol.HEADER_SECONDS", 1.0)
            silent = [await asyncio.open_connection("127.0.0.1", gateway.port) for _ in range(3)]
            async with bounded():
                more, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
                # The fourth is not read from at all.
                with pytest.raises(ConnectionError):
                    raise ConnectionError if not await more.read() else AssertionError
                writer.close()
                for reader, each in silent:
                    assert await reader.read() == b""
                    each.close()
        async with bounded():
            assert await asyncio.to_thread(served_certificate, gateway.port, tmp_path)
    finally:
        await gateway.stop()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda c, k: k.chmod(0o640), "others may read or write"),
        (lambda c, k: k.unlink(), "cannot be read: No such file"),
        (lambda c, k: c.unlink(), "cannot be read: No such file"),
        (lambda c, k: k.write_text("nothing"), "holds no private key"),
        (lambda c, k: c.write_text("nothing"), "holds no certificate"),
        (lambda c, k: c.write_text(c.read_text()[:200] + "\n-----END CERTIFICATE-----\n"), "cannot be used"),
    ],
)
def test_files_that_cannot_be_used_are_refused_by_name(tmp_path: Path, spoil: Any, words: str) -> None:
    certificate, key = pair(tmp_path, Authority(tmp_path, "ca"))
    ServerTls(TlsFiles(certificate=certificate, key=key))
    spoil(certificate, key)
    with pytest.raises(UsageError, match=words) as refused:
        ServerTls(TlsFiles(certificate=certificate, key=key))
    assert "gateway.tls" in str(refused.value)
    assert str(tmp_path) in str(refused.value)


def test_a_key_of_another_certificate_one_with_a_password_and_an_expired_one_are_refused(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path, "ca")
    certificate, key = pair(tmp_path, authority)
    other, _ = pair(tmp_path, authority, "other")
    with pytest.raises(UsageError, match="belongs to another certificate"):
        ServerTls(TlsFiles(certificate=other, key=key))
    locked = pair(tmp_path, authority, "locked", password="secret")
    with pytest.raises(UsageError, match="locked with a password"):
        ServerTls(TlsFiles(certificate=locked[0], key=locked[1]))
    old = pair(tmp_path, Authority(tmp_path, "old", valid_hours=(-48, -24)))
    with pytest.raises(UsageError, match="has expired: renew it"):
        ServerTls(TlsFiles(certificate=old[0], key=old[1]))
    early = pair(tmp_path, Authority(tmp_path, "early", valid_hours=(24, 48)))
    with pytest.raises(UsageError, match="not valid yet: check the clock"):
        ServerTls(TlsFiles(certificate=early[0], key=early[1]))
    assert certificate.exists()


@pytest.mark.parametrize("hours", [13 * 24, 15 * 24])
def test_check_tells_of_https_and_when_a_certificate_expires_soon(
    tmp_path: Path, hours: int, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = pair(tmp_path, Authority(tmp_path, "ca", valid_hours=(-1, hours)))
    tls = {"certificate": str(certificate), "key": str(key)}
    lab = {"lab": space_settings(participants(alice=["*"]))}
    file = write_config(tmp_path, gateway_settings(lab, port=8443, tls=tls))
    assert main(["serve", str(file), "--check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "gateway: https://127.0.0.1:8443"
    day = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc.date()
    soon = [f"note: gateway.tls.certificate: {certificate} expires on {day}: renew it"]
    assert [line for line in lines if "expires" in line] == (soon if hours < 14 * 24 else [])
    assert caplog.records == []


def test_a_gateway_that_others_reach_is_warned_about_without_tls_and_not_with_it(tmp_path: Path) -> None:
    certificate, key = pair(tmp_path, Authority(tmp_path, "ca"))
    lab = {"lab": space_settings(participants(alice=["*"]))}
    plain = load(write_config(tmp_path, gateway_settings(lab, host="0.0.0.0")), environ={})  # noqa: S104
    assert any(note.startswith("WARNING: gateway.host") and "gateway.tls" in note for note in plain.notes)
    tls = {"certificate": str(certificate), "key": str(key)}
    secure = load(write_config(tmp_path, gateway_settings(lab, host="0.0.0.0", tls=tls)), environ={})  # noqa: S104
    assert not any("no TLS" in note for note in secure.notes)


def _same_authority(folder: Path) -> Authority:
    """One more, which the clients of the test come to trust beside the first."""
    first = (folder / "ca.pem").read_text()
    authority = Authority(folder, "ca2")
    (folder / "ca.pem").write_text(first + authority.file.read_text())
    return authority


async def test_a_relay_and_an_mcp_server_speak_tls_too(tmp_path: Path) -> None:
    certificate, key = pair(tmp_path, Authority(tmp_path, "ca"))
    files = TlsFiles(certificate=certificate, key=key)
    async with (
        bounded(),
        open_relay(RelaySettings(data=tmp_path / "relay", port=0, tls=files)) as relay,
        connect(relay.url, ssl=trusting(tmp_path)) as client,
    ):
        assert relay.url.startswith("wss://")
        assert json.loads(await client.recv())[0] == "AUTH"

    async def hello(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hello"})

    with bind_socket("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        async with (
            serve_http(hello, listening, tls=ServerTls(files)),
            httpx.AsyncClient(verify=trusting(tmp_path), trust_env=False, timeout=HANG_SECONDS) as http,
        ):
            assert (await http.get(f"https://127.0.0.1:{port}/")).text == "hello"


def test_a_certificate_without_a_key_is_a_usage_error() -> None:
    options = argparse.Namespace(tls_certificate=Path("a.pem"), tls_key=None)
    with pytest.raises(UsageError, match="belong together"):
        tls_files_of(options)
