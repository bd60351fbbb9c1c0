"""`moot member token`: tokens of the gateway that end by themselves and carry little."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from moot.cli import main
from moot.protocol.operation import Json
from tests.gateway.running_gateway import LocalGateway, participants, running_gateway
from tests.gateway.sign_in.oidc_provider import person
from tests.gateway.sign_in.test_sign_in import enter, refusal, signing_in
from tests.waiting import until

PEOPLE = participants(
    alice=["*"],
    bob={
        "capabilities": ["chat", "mcp/proposal"],
        "tokens": ["t-bob", {"token": "t-less", "capabilities": ["chat"]}],
    },
)


async def mint(gateway: LocalGateway, name: str, token: str, **body: Json) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"}
    return await gateway.http.post(f"/participants/{name}/tokens", json=body, headers=headers)


async def test_a_short_lived_token_carries_what_it_says_and_no_more_than_its_maker(
    tmp_path: Path,
) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        made = (await mint(gateway, "alice", "t-alice", seconds=60, only=["chat"])).json()
        short = await enter(gateway, made["token"])
        assert short.received[0]["payload"]["you"]["id"] == "alice"
        assert await short.refused("chat", {"text": "hi"}) is None
        assert await short.refused("space/kick", {"participant_id": "bob"}) == "capability_violation"
        # Nobody gets more, or for longer, by asking again with it.
        assert (await mint(gateway, "alice", made["token"], seconds=30, only=["mcp/*"])).status_code == 403
        assert (await mint(gateway, "alice", made["token"], seconds=61)).status_code == 400
        child = (await mint(gateway, "alice", made["token"], seconds=30)).json()["token"]
        grandchild = await enter(gateway, child)
        assert await grandchild.refused("space/kick", {"participant_id": "bob"}) == "capability_violation"
        assert (await mint(gateway, "bob", "t-less", seconds=30, only=["mcp/proposal"])).status_code == 403
        less = await enter(gateway, (await mint(gateway, "bob", "t-less", seconds=30)).json()["token"])
        assert await less.refused("mcp/proposal", {"method": "tools/call"}) == "capability_violation"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"seconds": 0},
        {"seconds": -1},
        {"seconds": 86_401},
        {"seconds": True},
        {"seconds": "1h"},
        {"seconds": 5, "only": []},
        {"seconds": 5, "only": "chat"},
        {"seconds": 5, "keep": True},
        # It took three seconds of everybody's time to compare so many.
        {"seconds": 5, "only": [f"k{number}" for number in range(60_000)]},
        {"seconds": 5, "only": ["chat"] * 65},
    ],
)
async def test_what_is_no_request_for_a_token_is_refused(tmp_path: Path, body: dict[str, Any]) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        assert (await mint(gateway, "alice", "t-alice", **body)).status_code == 400


async def test_it_ends_by_itself_with_the_member_s_token_and_survives_a_restart_until_then(
    tmp_path: Path,
) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        kept = (await mint(gateway, "alice", "t-alice", seconds=600)).json()["token"]
        brief = (await mint(gateway, "bob", "t-bob", seconds=0.5)).json()["token"]
        await until(lambda: not gateway.gateway.directory.hosts["lab"].space.state.temporary_tokens.of("bob"))  # type: ignore[arg-type]
        assert (await refusal(gateway, brief))[0] == 401
        journal = [json.loads(line) for each in gateway.journal().glob("*") for line in lines_of(each)]
        assert kept not in str(journal)
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        client = await enter(gateway, kept)
        await gateway.admin("POST", "participants/alice/token", {})
        assert (await client.closed())[0] == 4003
        assert (await refusal(gateway, kept))[0] == 401


async def test_an_administrator_makes_one_for_anybody_and_a_member_only_their_own(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        answer = await gateway.admin("POST", "participants/bob/tokens", {"seconds": 60, "only": ["chat"]})
        assert (answer.status_code, answer.json()["participant_id"]) == (201, "bob")
        assert (await mint(gateway, "bob", "t-alice", seconds=60)).status_code == 403
        headers = {"Authorization": "Bearer t-alice"}
        where = "/admin/participants/bob/tokens"
        assert (await gateway.http.post(where, json={"seconds": 1}, headers=headers)).status_code == 403


@pytest.mark.usefixtures("no_refill")
async def test_tokens_are_made_at_a_rate_that_each_participant_has_for_itself(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE, minted_tokens_per_minute=3) as gateway:
        made = [await mint(gateway, "alice", "t-alice", seconds=60) for _ in range(3)]
        assert [each.status_code for each in made] == [201] * 3
        # A token that was made has no rate of its own: otherwise each would open the next three.
        refused = await mint(gateway, "alice", made[0].json()["token"], seconds=30)
        assert (refused.status_code, refused.json()["error"]) == (429, "denied")
        assert 1 <= int(refused.headers["Retry-After"]) <= 20
        assert "than 3 a minute" in refused.json()["message"]
        assert (await mint(gateway, "bob", "t-bob", seconds=60)).status_code == 201
        by_admin = [
            (await gateway.admin("POST", "participants/bob/tokens", {"seconds": 60})).status_code
            for _ in range(4)
        ]
        assert by_admin == [201, 201, 201, 429]
        assert (await gateway.admin("POST", "participants/alice/tokens", {"seconds": 60})).status_code == 201


async def test_what_was_made_with_a_sign_in_ends_with_it(tmp_path: Path) -> None:
    async with signing_in(tmp_path, person()) as (gateway, provider):
        token = provider.token()
        assert (await mint(gateway, "ana", token, seconds=3_600)).status_code == 400
        made = (await mint(gateway, "ana", token, seconds=30)).json()["token"]
        client = await enter(gateway, made)
        headers = {"Authorization": f"Bearer {token}"}
        await gateway.http.post("/oidc/sign-out", headers=headers)
        assert (await client.closed())[0] == 4003
        assert (await refusal(gateway, made))[0] == 401


async def test_the_command_prints_a_token_or_writes_it_for_its_owner_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        own = tmp_path / "bob.token"
        own.write_text("t-bob")
        own.chmod(0o600)
        target = ["--gateway", gateway.url, "--space", "lab", "--token-file", str(own)]
        command = ["member", "token", "--for", "1h", "--only", "chat", *target]
        assert await asyncio.to_thread(main, command) == 0
        printed = capsys.readouterr()
        assert (await enter(gateway, printed.out.strip())).received[0]["payload"]["you"]["id"] == "bob"
        assert printed.err == "bob: chat, for 3600 s\n"
        out = tmp_path / "ci.token"
        assert await asyncio.to_thread(main, [*command, "--token-out", str(out)]) == 0
        assert out.stat().st_mode & 0o777 == 0o600
        assert (await refusal(gateway, out.read_text().strip()))[0] == 101
        assert await asyncio.to_thread(main, ["member", "token", "alice", "--for", "1h", *target]) != 0
        assert "--admin-token-file" in capsys.readouterr().err


async def test_an_administrator_needs_to_be_nobody_in_the_space(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the address and the space are looked for, not as whom somebody would join."""
    for name in ("MOOT_URL", "MOOT_SPACE", "MOOT_TOKEN", "MOOT_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    root = tmp_path / "root.token"
    root.write_text("t-root")
    root.chmod(0o600)
    command = ["member", "token", "bob", "--for", "8h", "--admin-token-file", str(root)]
    assert main(command) == 2
    assert "--gateway URL is missing" in capsys.readouterr().err
    async with running_gateway(tmp_path, PEOPLE, admin_tokens={"root": {"token": "t-root"}}) as gateway:
        assert await asyncio.to_thread(main, [*command, "--gateway", gateway.url, "--space", "lab"]) == 0
        port = gateway.url.rpartition(":")[2]
        (folder / "moot.yaml").write_text(
            f"gateway: {{port: {port}}}\nspaces: {{lab: {{participants: {{alice: ['*'], bob: ['*']}}}}}}\n"
        )
        assert await asyncio.to_thread(main, command) == 0
        for made in capsys.readouterr().out.split():
            assert (await enter(gateway, made)).received[0]["payload"]["you"]["id"] == "bob"
        # What the environment says comes before the folder, as for every command, but not before a name.
        monkeypatch.setenv("MOOT_URL", "http://127.0.0.1:9")
        assert await asyncio.to_thread(main, command) == 5
        assert await asyncio.to_thread(main, [*command, "--config", "moot.yaml"]) == 0


def lines_of(path: Path) -> list[bytes]:
    return [line for line in path.read_bytes().splitlines() if line.startswith(b"{")]
