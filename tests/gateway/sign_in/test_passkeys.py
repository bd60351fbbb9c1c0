"""Passkeys over HTTP: added, listed, used to sign in and to approve, removed; and what is refused."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

import pytest

from moot.cli import main
from moot.errors import InvalidRequest, PasskeyInvalid, PasskeyRequired
from moot.gateway.access import SpaceDirectory
from moot.gateway.sign_in.passkey_service import PasskeyService, Ticket, challenge_of, relying_party
from moot.operations.operation import ClientContext
from moot.operations.operation_table import OPERATIONS
from moot.participant import connect
from moot.protocol import base64url
from moot.protocol.operation import Json
from tests.authenticator import SoftwareAuthenticator, verify_again
from tests.gateway.running_gateway import CALL, GatewayUnderTest, participants, running_gateway
from tests.gateway.sign_in.oidc_provider import person
from tests.gateway.sign_in.test_sign_in import enter, signing_in
from tests.waiting import until

PEOPLE = participants(ana=["*"], bob=["*"], agent=["mcp/proposal"], tool=[])
ADMIN = {"Authorization": "Bearer t-root"}


class Browser:
    """A page of the gateway with an authenticator."""

    def __init__(self, gateway: GatewayUnderTest, token: str = "", id: bytes = b"a key of a test") -> None:
        self.gateway = gateway
        self.key = SoftwareAuthenticator(id)
        self.origin = f"http://localhost:{gateway.port}"
        self.token = token

    async def post(self, path: str, body: Any) -> Any:
        headers = {"Origin": self.origin, "Host": self.origin.partition("//")[2]}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        answer = await self.gateway.http.post(path, json=body, headers=headers)
        return answer.status_code, answer.json()

    async def add(self, *, proof: SoftwareAuthenticator | None = None, **how: Any) -> tuple[int, Any]:
        status, options = await self.post("/passkey-options", how)
        return (status, options) if status != 200 else await self.finish(options["ticket"], proof=proof)

    async def finish(self, ticket: str, *, proof: SoftwareAuthenticator | None = None) -> tuple[int, Any]:
        challenge = challenge_of(ticket)
        made = self.key.create({"challenge": base64url.encode(challenge)}, self.origin)
        body = {"ticket": ticket, "credential": made, "name": "laptop"}
        if proof is not None:
            body["proof"] = proof.sign(challenge, origin=self.origin)
        found: tuple[int, Any] = await self.post("/passkeys", body)
        return found

    async def sign_in(self, ticket: str = "") -> tuple[int, Any]:
        if not ticket:
            ticket = (await self.post("/passkey-sign-in/options", {}))[1]["ticket"]
        signed = self.key.sign(challenge_of(ticket), origin=self.origin)
        found: tuple[int, Any] = await self.post("/passkey-sign-in", {"ticket": ticket, "assertion": signed})
        return found


async def test_a_passkey_from_adding_it_to_its_removal(tmp_path: Path) -> None:
    rules = {"passkeys": {"required": [{"tool": CALL["params"]["name"]}]}}
    async with running_gateway(tmp_path, PEOPLE, rules=rules) as gateway:
        agent, tool = await gateway.join("agent"), await gateway.join("tool")
        ana = Browser(gateway, "t-ana")
        assert await ana.add() == (201, {"spaces": ["lab"]})
        assert (await ana.add())[1]["error"] == "invalid_operation"
        second = Browser(gateway, "t-ana", b"second")
        assert (await second.add())[1]["error"] == "passkey_required"
        assert (await second.add(proof=second.key))[1]["error"] == "passkey_invalid"
        assert (await second.add(proof=ana.key))[0] == 201

        ana.token = ""
        status, session = await ana.sign_in()
        assert (status, session["spaces"]) == (200, [{"space": "lab", "participant": "ana"}])
        ticket = (await ana.post("/passkey-sign-in/options", {}))[1]["ticket"]
        assert (await ana.sign_in(ticket))[0] == 200
        assert "used before" in (await ana.sign_in(ticket))[1]["message"]
        assert (await ana.sign_in(ticket[:-2] + "AA"))[0] == 403
        assert "no space here knows" in (await Browser(gateway, "", b"nobody's").sign_in())[1]["message"]

        assert await agent.refused("mcp/proposal", CALL, to=["tool"], id="p1") is None
        ana.token = session["token"]
        vote = {"kind": "moot/approve", "correlation_id": ["p1"], "payload": {}}
        headers = {"Authorization": f"Bearer {ana.token}"}
        plain = await gateway.http.post("/participants/ana/messages", json=vote, headers=headers)
        assert (plain.status_code, plain.json()["error"]) == (403, "passkey_required")
        status, asked = await ana.post("/spaces/lab/passkey-challenges", {"proposal_id": "p1"})
        assert (status, sorted(asked["credentials"])) == (200, sorted([ana.key.id, second.key.id]))
        challenge = base64url.decode(asked["challenge"])
        signed = ana.key.sign(challenge, origin=ana.origin)
        made_of = {name: asked[name] for name in ("nonce", "expires")}
        vote["payload"] = {"passkey": signed | made_of}
        done = await gateway.http.post("/participants/ana/messages", json=vote, headers=headers)
        assert (await tool.hear("mcp/request"))["id"] == done.json()["request_id"]
        verify_again(ana.key.public_key, signed, challenge)
        # Whoever gets the receipt can check it again, offline.
        receipt = (await gateway.http.get("/spaces/lab/receipts/p1", headers=headers)).json()
        (decision,) = receipt["claims"]["decisions"]
        assert (decision["by"], decision["passkey"]["public_key"]) == ("ana", ana.key.public_key)

        listed = await gateway.http.get("/passkeys", headers=headers)
        assert [each["name"] for each in listed.json()["passkeys"]] == ["laptop", "laptop"]
        gone = await gateway.http.delete(f"/passkeys/{ana.key.id}", headers=headers)
        assert gone.json() == {"id": ana.key.id, "removed": True}
        # The session that it began ends with it.
        assert (await gateway.http.get("/passkeys", headers=headers)).status_code == 401
        ana.token = ""
        assert (await ana.sign_in())[0] == 403


async def test_a_lost_key_comes_back_by_a_link_of_an_operator(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE, admin_tokens={"root": {"token": "t-root"}}) as gateway:
        ana = Browser(gateway, "t-ana")
        assert (await ana.add())[0] == 201
        revoked = await gateway.http.delete(f"/admin/passkeys/{ana.key.id}?space=lab", headers=ADMIN)
        assert revoked.json()["participant"] == "ana"
        fresh = Browser(gateway, "t-ana", b"a new phone")
        refused = (await fresh.add())[1]
        assert (refused["error"], "link" in refused["message"]) == ("unauthorized", True)
        path = "/admin/participants/ana/passkey-link?space=lab"
        assert (await gateway.http.post(path, headers={"Authorization": "Bearer t-ana"})).status_code == 403
        link = (await gateway.http.post(path, headers=ADMIN)).json()
        assert link["address"].startswith("http://localhost:")
        fresh.token = ""
        assert (await fresh.add(code=link["code"]))[0] == 201
        assert (await fresh.add(code=link["code"]))[0] == 403
        assert (await fresh.sign_in())[0] == 200
        audit = await gateway.http.get("/admin/sign-ins?space=lab", headers=ADMIN)
        events = [(each["event"], each["participant"], each["by"]) for each in audit.json()["sign_ins"]]
        assert events == [
            ("signed_in", "ana", "ana"),
            ("passkey_added", "ana", "root"),
            ("passkey_removed", "ana", "root"),
            ("passkey_added", "ana", "ana"),
        ]


async def test_a_token_that_ends_or_carries_less_adds_none(tmp_path: Path) -> None:
    """Otherwise a program with an hour's token would have a way in for ever."""
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        headers = {"Authorization": "Bearer t-ana"}
        made = await gateway.http.post("/participants/ana/tokens", json={"seconds": 60}, headers=headers)
        status, refused = await Browser(gateway, made.json()["token"]).add()
        assert (status, "ends by itself" in refused["message"]) == (403, True)
        body = {"seconds": 60, "only": ["chat"]}
        made = await gateway.http.post("/participants/ana/tokens", json=body, headers=headers)
        limited = made.json()["token"]
        status, refused = await Browser(gateway, limited).add()
        assert (status, "less than all rights" in refused["message"]) == (403, True)
        # Nor does it remove any: the program of a chat has such a token.
        ana = Browser(gateway, "t-ana")
        assert (await ana.add())[0] == 201
        as_program = {"Authorization": f"Bearer {limited}"}
        gone = await gateway.http.delete(f"/passkeys/{ana.key.id}", headers=as_program)
        assert (gone.status_code, gone.json()["error"]) == (403, "unauthorized")
        assert (await ana.sign_in())[0] == 200


async def test_a_link_adds_one_passkey(tmp_path: Path) -> None:
    """An operator who revokes what a stranger added by it has ended that."""
    async with running_gateway(tmp_path, PEOPLE, admin_tokens={"root": {"token": "t-root"}}) as gateway:
        path = "/admin/participants/ana/passkey-link?space=lab"
        code = (await gateway.http.post(path, headers=ADMIN)).json()["code"]
        stranger = Browser(gateway)
        ticket = (await stranger.post("/passkey-options", {"code": code}))[1]["ticket"]
        assert (await stranger.finish(ticket))[0] == 201
        other = Browser(gateway, "", b"another one")
        assert "used before" in (await other.finish(ticket))[1]["message"]
        await gateway.http.delete(f"/admin/passkeys/{stranger.key.id}?space=lab", headers=ADMIN)
        assert "used before" in (await stranger.finish(ticket))[1]["message"]


@pytest.mark.parametrize(
    ("origin", "public_url", "words"),
    [
        ("http://127.0.0.1:8080", None, "open the console at http://localhost:8080"),
        ("http://[::1]:8080", None, "open the console at http://localhost:8080"),
        ("https://192.0.2.7", None, "is an address"),
        ("http://moot.example.org", None, "https"),
        ("https://other.example.org", "https://moot.example.org", "at https://moot.example.org"),
        (None, None, "browsers"),
        ("http://[", None, "no address of a page"),
        ("http://127.0.0.1:99999", None, "no address of a page"),
        ("null", None, "no address of a page"),
    ],
)
def test_where_there_can_be_none_it_says_what_to_do(
    origin: str | None, public_url: str | None, words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words):
        relying_party(origin, public_url)


@pytest.mark.parametrize(
    ("origin", "public_url", "id"),
    [
        ("http://localhost:8080", None, "localhost"),
        ("https://moot.example.org", None, "moot.example.org"),
        ("https://moot.example.org", "https://moot.example.org", "moot.example.org"),
        ("http://localhost:8080", "https://moot.example.org", "localhost"),
    ],
)
def test_it_is_bound_to_the_name_of_the_page(origin: str, public_url: str | None, id: str) -> None:
    assert relying_party(origin, public_url).id == id


async def test_the_shell_hands_a_link_and_waits_until_it_is_approved_there(tmp_path: Path) -> None:
    rules: Json = {"passkeys": {"required": [{}]}}
    async with running_gateway(tmp_path, PEOPLE, rules=rules) as gateway:
        agent, tool = await gateway.join("agent"), await gateway.join("tool")
        browser = Browser(gateway, "t-ana")
        assert (await browser.add())[0] == 201
        assert await agent.refused("mcp/proposal", CALL, to=["tool"], id="p1234567") is None
        url = f"http://127.0.0.1:{gateway.port}"
        async with connect(url, "lab", "t-ana", passive=True) as space:
            await space.recall()
            said: asyncio.Queue[str] = asyncio.Queue()
            context = ClientContext(space, console_url=url, on_waiting=said.put_nowait)
            approve = next(each for each in OPERATIONS if each.name == "approve")
            parser = argparse.ArgumentParser()
            approve.arguments(parser)
            wanted = parser.parse_args(["p1234567"])
            waiting = asyncio.ensure_future(approve.run(context, wanted))
            await until(lambda: waiting.done() or not said.empty())
            assert not waiting.done(), waiting.exception()
            assert f"open http://localhost:{gateway.port}/#/lab/approvals/p1234567" in said.get_nowait()
            asked = (await browser.post("/spaces/lab/passkey-challenges", {"proposal_id": "p1234567"}))[1]
            signed = browser.key.sign(base64url.decode(asked["challenge"]), origin=browser.origin)
            made_of = {name: asked[name] for name in ("nonce", "expires")}
            payload = {"passkey": signed | made_of}
            vote = {"kind": "moot/approve", "correlation_id": ["p1234567"], "payload": payload}
            assert (await gateway.post("ana", vote)).status_code == 200
            request = await tool.hear("mcp/request")
            answer = {"jsonrpc": "2.0", "id": request["payload"]["id"], "result": {}}
            assert await tool.refused("mcp/response", answer, to=["ana"], about=[request["id"]]) is None
            result = await waiting
            assert (result.code, result.value["by"]) == (0, "ana")
            context.on_waiting = None
            assert await agent.refused("mcp/proposal", CALL, to=["tool"], id="p2345678") is None
            await until(lambda: space.proposals.get("p2345678") is not None)
            wanted = parser.parse_args(["p2345678"])
            with pytest.raises(PasskeyRequired, match="open http://localhost"):
                await approve.run(context, wanted)


async def test_the_command_lists_revokes_and_makes_a_link(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "root.token"
    token.write_text("t-root\n")
    token.chmod(0o600)
    async with running_gateway(tmp_path, PEOPLE, admin_tokens={"root": {"token": "t-root"}}) as gateway:
        ana = Browser(gateway, "t-ana")
        assert (await ana.add())[0] == 201
        where = ["--gateway", f"http://127.0.0.1:{gateway.port}", "--space", "lab"]
        where += ["--admin-token-file", str(token)]

        async def moot(*words: str) -> str:
            assert await asyncio.to_thread(main, ["passkeys", *words, *where]) == 0
            return capsys.readouterr().out

        assert "laptop" in await moot("list")
        assert "ana" in await moot("list", "ana")
        assert "no passkeys" in await moot("list", "bob")
        assert "removed" in await moot("revoke", ana.key.id[:8])
        address = (await moot("link", "ana")).splitlines()[0]
        assert address.startswith(f"http://localhost:{gateway.port}/#passkey=")
        code = address.partition("=")[2]
        assert (await Browser(gateway, "", b"the next one").add(code=code))[0] == 201


@pytest.mark.parametrize("kept", ["snapshot", "journal"])
async def test_a_restart_knows_keys_sign_ins_and_what_was_signed(tmp_path: Path, kept: str) -> None:
    rules: Json = {"passkeys": {"required": [{}]}}
    async with running_gateway(tmp_path, PEOPLE, rules=rules) as gateway:
        agent, tool = await gateway.join("agent"), await gateway.join("tool")
        ana, bob = Browser(gateway, "t-ana"), Browser(gateway, "t-bob", b"bob's")
        assert (await ana.add())[0] == (await bob.add())[0] == 201
        removed = await gateway.http.delete(
            f"/passkeys/{bob.key.id}", headers={"Authorization": "Bearer t-bob"}
        )
        assert removed.status_code == 200
        session = (await ana.sign_in())[1]["token"]
        assert await agent.refused("mcp/proposal", CALL, to=["tool"], id="p1") is None
        asked = (await ana.post("/spaces/lab/passkey-challenges", {"proposal_id": "p1"}))[1]
        signed = ana.key.sign(base64url.decode(asked["challenge"]), origin=ana.origin)
        payload = {"passkey": signed | {name: asked[name] for name in ("nonce", "expires")}}
        vote = {"kind": "moot/approve", "correlation_id": ["p1"], "payload": payload}
        assert (await gateway.post("ana", vote)).status_code == 200
        await tool.hear("mcp/request")
        table = gateway.gateway.directory.hosts["lab"].space.state.passkeys.save()
        folder = gateway.gateway.config.data
    if kept == "journal":
        for file in folder.glob("moot.sqlite*"):
            file.unlink()
    async with running_gateway(tmp_path, PEOPLE, rules=rules) as gateway:
        assert gateway.gateway.directory.hosts["lab"].space.state.passkeys.save() == table
        headers = {"Authorization": f"Bearer {session}"}
        found = (await gateway.http.get("/passkeys", headers=headers)).json()["passkeys"]
        assert [each["id"] for each in found] == [ana.key.id]
        assert (await Browser(gateway, "t-bob", b"bob's").add())[1]["error"] == "unauthorized"


async def test_a_ticket_of_one_gateway_is_good_at_the_others_of_its_cluster_alone() -> None:
    """They share a key through NATS; here it is a dictionary."""

    class Shared(dict[str, bytes]):
        async def create(self, key: str, value: bytes) -> bytes:
            return self.setdefault(key, value)

    shared = Shared()
    first, second, stranger = (PasskeyService(SpaceDirectory(), max_token_seconds=60.0) for _ in range(3))
    first.shared = second.shared = shared
    party = relying_party("https://moot.example.org", None)
    ticket = Ticket(use="sign_in", relying_party=party, expires=100.0, nonce="n")
    text = await first.issue(ticket)
    assert await second.read(text, "sign_in", 99.0) == ticket
    for reader, use, now in ((stranger, "sign_in", 99.0), (second, "add", 99.0), (second, "sign_in", 100.0)):
        with pytest.raises(PasskeyInvalid, match="start again"):
            await reader.read(text, use, now)


async def test_a_token_that_was_replaced_meanwhile_adds_none(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE, admin_tokens={"root": {"token": "t-root"}}) as gateway:
        ana = Browser(gateway, "t-ana")
        ticket = (await ana.post("/passkey-options", {}))[1]["ticket"]
        path = "/admin/participants/ana/token?space=lab"
        assert (await gateway.http.post(path, json={}, headers=ADMIN)).status_code == 200
        status, refused = await ana.finish(ticket)
        assert (status, refused["error"]) == (403, "unauthorized")


async def test_a_token_of_a_provider_that_the_space_has_not_seen_adds_no_way_past_the_provider(
    tmp_path: Path,
) -> None:
    """Of an account that is a participant of the configuration, and goes to the passkeys first."""
    rule: Json = {"match": {"sub": "*"}, "participant": "ana", "spaces": ["lab"]}
    async with signing_in(tmp_path, rule, people=PEOPLE) as (gateway, provider):
        ana = Browser(gateway, provider.token())
        ticket = (await ana.post("/passkey-options", {}))[1]["ticket"]
        await enter(gateway, ana.token)
        assert (await ana.finish(ticket))[0] == 201
        ana.token = ""
        status, refused = await ana.sign_in()
        assert (status, "identity provider" in refused["message"]) == (403, True)


async def test_a_program_of_somebody_who_signed_in_adds_no_passkey_of_theirs(tmp_path: Path) -> None:
    """Its token gives less than their console's, and it would confirm what they alone may."""
    full = person(match={"client_id": "console"}, capabilities=["chat", "moot/*"])
    less = person(capabilities=["chat", "moot/approve"])
    async with signing_in(tmp_path, full, less, people=PEOPLE) as (gateway, provider):
        console = Browser(gateway, provider.token("u-eve", client_id="console"))
        program = Browser(gateway, provider.token("u-eve", client_id="agent"), b"a program's")
        await enter(gateway, console.token)
        status, refused = await program.add()
        assert (status, "less than all rights" in refused["message"]) == (403, True)
        assert (await console.add())[0] == 201
