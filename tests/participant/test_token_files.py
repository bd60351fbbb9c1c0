"""Tokens that another program replaces while a member is connected: rotation without downtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from moot.config import hash_token
from moot.config.connect_settings import CliOverrides, TokenFile, connect_settings
from moot.participant import connect
from moot.resilience.atomic_file import write_atomically
from tests.gateway.running_gateway import LocalGateway, participants, running_gateway
from tests.gateway.sign_in.test_service_identities import svid, trust_domain
from tests.waiting import HANG_SECONDS, bounded, until


@pytest.fixture(autouse=True)
def reload_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.participant.connection.link.TOKEN_RELOAD_SECONDS", 0.02)
    monkeypatch.setattr("moot.participant.connection.link.TOKEN_REPLACED_SECONDS", HANG_SECONDS)


def source(file: Path, token: str) -> TokenFile:
    write_atomically(file, token.encode())
    return TokenFile(file, token)


def tokens_in_use(gateway: LocalGateway, name: str) -> list[str | None]:
    member = gateway.gateway.directory.hosts["lab"].space.state.roster.members[name]  # type: ignore[index]
    return [session.options.token for session in member.sessions.values()]


async def test_a_workload_goes_on_with_the_next_token_on_the_same_connection(tmp_path: Path) -> None:
    file = tmp_path / "svid"
    async with trust_domain(tmp_path) as (gateway, provider):
        first, second = svid(provider, seconds=3_500), svid(provider, seconds=3_600)
        async with connect(gateway.url, "lab", source(file, first)) as space:
            lost: list[object] = []
            space.on("system/welcome", own=True)(lost.append)
            write_atomically(file, second.encode())
            await until(lambda: tokens_in_use(gateway, "builder") == [hash_token(second)])
            assert lost == []


async def test_a_lasting_token_that_is_replaced_is_used_when_the_old_one_is_void(tmp_path: Path) -> None:
    """The gateway ends the connection, and the member comes back by itself, with the new one."""
    file = tmp_path / "root.token"
    async with (
        running_gateway(tmp_path, participants(root=["*"], ana=["chat"])) as gateway,
        connect(gateway.url, "lab", source(file, "t-ana")) as space,
    ):
        made = await gateway.admin("POST", "participants/ana/token", {"keep": True}, space="lab")
        fresh = made.json()["token"]
        write_atomically(file, fresh.encode())
        # Nothing happens before: this kind of token cannot be renewed on a connection.
        made = await gateway.admin("POST", "participants/ana/token", {}, space="lab")
        last = made.json()["token"]
        write_atomically(file, last.encode())
        await until(lambda: tokens_in_use(gateway, "ana") == [hash_token(last)])
        await until(lambda: space.me == "ana")


async def test_a_token_that_is_written_down_after_the_one_before_was_refused_is_used(tmp_path: Path) -> None:
    """Whoever replaces a token has it a moment before the file has it."""
    tokens = ["t-ana"]
    asked: list[str] = []

    def current() -> str:
        asked.append(tokens[0])
        return tokens[0]

    async with (
        bounded(),
        running_gateway(tmp_path, participants(root=["*"], ana=["chat"])) as gateway,
        connect(gateway.url, "lab", current) as space,
    ):
        tokens[0] = "void"
        made = await gateway.admin("POST", "participants/ana/token", {}, space="lab")
        # It was seen, taken to the gateway, and looked at again after the refusal.
        await until(lambda: not tokens_in_use(gateway, "ana") and asked.count("void") > 4)
        tokens[0] = made.json()["token"]
        await until(lambda: tokens_in_use(gateway, "ana") == [hash_token(tokens[0])])
        await until(lambda: space.me == "ana")


async def test_who_is_removed_with_the_newest_token_stays_away(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, participants(root=["*"], ana=["chat"])) as gateway,
        connect(gateway.url, "lab", source(tmp_path / "t", "t-ana")) as space,
    ):
        await gateway.admin("POST", "participants/ana/token", {}, space="lab")
        assert (await space.stay()).code == 4003


def test_a_file_that_cannot_be_read_leaves_the_last_token(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "token"
    token = source(file, "first")
    assert token() == "first"
    file.unlink()
    assert token() == "first"
    file.write_text("public")
    file.chmod(0o644)
    assert token() == "first"
    assert "public" not in caplog.text
    write_atomically(file, b"second")
    assert token() == "second"


def test_programs_with_a_token_file_look_at_it_again(tmp_path: Path) -> None:
    file = tmp_path / "ana.token"
    source(file, "first")
    asked = CliOverrides(gateway="http://localhost:8080", token_file=file)
    where = connect_settings(asked, environ={}, folder=tmp_path)
    token = where.token_source
    assert callable(token)
    write_atomically(file, b"second")
    assert token() == "second"
    fixed = connect_settings(
        CliOverrides(gateway="http://localhost:8080"), environ={"MOOT_TOKEN": "x"}, folder=tmp_path
    )
    assert fixed.token_source == "x"


async def test_a_function_for_tokens_that_fails_is_told_to_whoever_waits(tmp_path: Path) -> None:
    """To who joins, and later to who stays: nothing else would end either."""
    tokens = ["t-ana"]

    def current() -> str:
        return tokens[0]

    async with bounded(), running_gateway(tmp_path, participants(ana=["chat"])) as gateway:
        async with connect(gateway.url, "lab", current) as space:
            tokens.clear()
            ended = await space.stay()
            assert (ended.code, ended.reason) == (1006, "it failed here: IndexError")
        with pytest.raises(IndexError):
            async with connect(gateway.url, "lab", current):
                pass
