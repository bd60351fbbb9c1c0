"""Passkeys behind a load balancer: whatever request comes next may reach another gateway of the cluster."""

from __future__ import annotations

import asyncio
from typing import Any

from moot.protocol import base64url
from moot.protocol.operation import Json
from moot.space.config import Name
from moot.space.tokens.passkey_proof import decision_challenge
from tests.authenticator import SoftwareAuthenticator, verify_again
from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.running_gateway import CALL, LocalGateway, participants
from tests.gateway.sign_in.oidc_provider import person, running_provider
from tests.gateway.sign_in.test_passkeys import ADMIN, Browser
from tests.gateway.sign_in.test_sign_in import has_keys
from tests.waiting import until

PEOPLE = participants(ana=["*"], bob=["*"], agent=["mcp/proposal"], tool=[])
SIGNED: dict[str, Json] = {"passkeys": {"required": [{"tool": CALL["params"]["name"]}]}}
ADDRESS = "https://moot.example.org"
SHARED: dict[str, Any] = {
    "admin_tokens": {"root": {"token": "t-root"}},
    "public_url": ADDRESS,
    "allowed_hosts": ["moot.example.org", "localhost"],
    "allowed_origins": [ADDRESS],
}


def page(gateway: LocalGateway, token: str = "", id: bytes = b"a key of a test") -> Browser:
    """The console at the address that all gateways have in common."""
    browser = Browser(gateway, token)
    browser.origin, browser.key = ADDRESS, SoftwareAuthenticator(id, rp_id="moot.example.org")
    return browser


def move(browser: Browser, gateway: LocalGateway) -> Browser:
    """The same page and key, whose next requests the balancer sends elsewhere."""
    browser.gateway = gateway
    return browser


async def confirm(
    browser: Browser, asked: dict[str, Any], id: str = "p1", who: str = "ana"
) -> tuple[int, Any]:
    """Sign what a gateway asked for, and vote with it where the page is now."""
    signed = browser.key.sign(base64url.decode(asked["challenge"]), origin=browser.origin)
    payload = {"passkey": signed | {name: asked[name] for name in ("nonce", "expires")}}
    return await vote(browser, payload, id, who)


async def vote(browser: Browser, payload: Json, id: str = "p1", who: str = "ana") -> tuple[int, Any]:
    sent = {"kind": "moot/approve", "correlation_id": [id], "payload": payload}
    status, answer = await browser.post(f"/participants/{who}/messages?space=lab", sent)
    return status, answer


async def ask(browser: Browser, id: str = "p1") -> dict[str, Any]:
    status, asked = await browser.post("/spaces/lab/passkey-challenges", {"proposal_id": id})
    assert status == 200, asked
    found: dict[str, Any] = asked
    return found


async def knows(gateway: LocalGateway, id: str) -> None:
    await until(lambda: gateway.gateway.directory.hosts["lab"].space.state.ledger.get(id) is not None)


def is_open(gateway: LocalGateway, id: str) -> bool:
    found = gateway.gateway.directory.hosts["lab"].space.state.ledger.get(id)
    return found is not None and found.state_at(0.0) == "open"


async def test_a_passkey_is_added_at_one_gateway_and_confirms_at_every_other(start: StartGateway) -> None:
    async with (
        start("a", PEOPLE, rules=SIGNED, **SHARED) as a,
        start("b", PEOPLE, rules=SIGNED, **SHARED) as b,
        start("c", PEOPLE, rules=SIGNED, **SHARED) as c,
    ):
        agent, tool = await a.join("agent"), await c.join("tool")
        # Asked for at one, answered to the next: no gateway remembers what it asked.
        ana = page(a, "t-ana")
        ticket = (await ana.post("/passkey-options", {}))[1]["ticket"]
        assert await move(ana, b).finish(ticket) == (201, {"spaces": ["lab"]})
        for each in (a, c):
            assert "used before" in (await move(ana, each).finish(ticket))[1]["message"]

        move(ana, a).token = ""
        ticket = (await ana.post("/passkey-sign-in/options", {}))[1]["ticket"]
        status, session = await move(ana, b).sign_in(ticket)
        assert (status, session["spaces"]) == (200, [{"space": "lab", "participant": "ana"}])
        for each in (a, c, b):
            assert "used before" in (await move(ana, each).sign_in(ticket))[1]["message"]

        assert await agent.refused("mcp/proposal", CALL, to=["tool"], id="p1") is None
        await knows(b, "p1")
        ana.token = session["token"]
        asked = await ask(move(ana, a))
        plain = await vote(move(ana, b), {})
        assert (plain[0], plain[1]["error"]) == (403, "passkey_required")
        move(ana, b)
        status, done = await confirm(ana, asked)
        assert status == 200, done
        assert (await tool.hear("mcp/request"))["id"] == done["request_id"]
        # What stands in the history of each is enough for another library to check it.
        for each in (a, b, c):
            await until(lambda each=each: not is_open(each, "p1"))  # type: ignore[misc]
            headers = {"Authorization": f"Bearer {session['token']}"}
            told = (await each.http.get("/spaces/lab/history", headers=headers)).json()["messages"]
            (voted,) = [one["payload"]["passkey"] for one in told if one["kind"] == "moot/approve"]
            proposal = each.gateway.directory.hosts["lab"].space.state.ledger.proposals["p1"]
            made_of = {name: voted[name] for name in ("nonce", "expires")}
            challenge = decision_challenge("lab", proposal, Name("ana"), "approve", **made_of)
            verify_again(ana.key.public_key, voted, challenge)

        # Revoked at the third: no session that it began, and no signature of it, is worth anything anywhere.
        assert await agent.refused("mcp/proposal", CALL, to=["tool"], id="p2") is None
        for each in (a, b, c):
            await knows(each, "p2")
        asked = await ask(move(ana, a), "p2")
        gone = await c.http.delete(f"/admin/passkeys/{ana.key.id}?space=lab", headers=ADMIN)
        assert gone.json()["participant"] == "ana"
        session_token = ana.token
        for each in (a, b, c):
            keys = each.gateway.directory.hosts["lab"].space.state.passkeys.by_id
            await until(lambda keys=keys: not keys)  # type: ignore[misc]
            ana.token = session_token
            assert (await move(ana, each).post("/passkeys", {}))[0] in (401, 403)
            assert (await confirm(ana, asked, "p2"))[0] in (401, 403)
            ana.token = "t-ana"
            status, refused = await confirm(ana, asked, "p2")
            assert (status, refused["error"]) == (403, "passkey_invalid")
            ana.token = ""
            assert (await ana.sign_in())[0] == 403
            ana.token = "t-ana"
            assert (await ana.add())[1]["error"] == "unauthorized"


async def test_one_signature_at_several_gateways_at_once_counts_once(start: StartGateway) -> None:
    async with (
        start("a", PEOPLE, rules=SIGNED, **SHARED) as a,
        start("b", PEOPLE, rules=SIGNED, **SHARED) as b,
    ):
        agent, tool = await a.join("agent"), await b.join("tool")
        ana = page(a, "t-ana")
        assert (await ana.add())[0] == 201
        ana.token = ""
        ticket = (await ana.post("/passkey-sign-in/options", {}))[1]["ticket"]
        at_b = page(b)
        at_b.key = ana.key
        both = (ana, at_b)
        tried = await asyncio.gather(*(each.sign_in(ticket) for each in both * 3))
        assert sorted(status for status, _ in tried) == [200] + [403] * 5
        ana.token = at_b.token = "t-ana"
        assert await agent.refused("mcp/proposal", CALL, to=["tool"], id="p1") is None
        await knows(b, "p1")
        asked = await ask(ana)
        signed = ana.key.sign(base64url.decode(asked["challenge"]), origin=ana.origin)
        payload: Json = {"passkey": signed | {name: asked[name] for name in ("nonce", "expires")}}
        votes = await asyncio.gather(*(vote(each, payload) for each in both * 3))
        assert [
            answer.get("request_id") for status, answer in votes if status == 200 and answer.get("request_id")
        ]
        await tool.hear("mcp/request")
        assert await tool.fence() == []


async def test_who_comes_by_a_provider_adds_one_at_one_gateway_and_confirms_at_another(
    start: StartGateway,
) -> None:
    """And signs in past the provider with it at none."""
    rule = person(capabilities=["chat", "moot/*", "mcp/*"])
    async with running_provider() as provider:
        more: dict[str, Any] = SHARED | {"oidc": provider.rules(rule), "rules": SIGNED}
        async with start("a", PEOPLE, **more) as a, start("b", PEOPLE, **more) as b:
            await until(lambda: has_keys(a) and has_keys(b))
            agent, tool = await a.join("agent"), await a.join("tool")
            eve = page(a, provider.token("u-eve"), b"eve's")
            # The very first request of somebody whom no space knows yet; then with a newer token.
            ticket = (await eve.post("/passkey-options", {}))[1]["ticket"]
            eve.token = provider.token("u-eve", seconds=90)
            assert await move(eve, b).finish(ticket) == (201, {"spaces": ["lab"]})
            assert await agent.refused("mcp/proposal", CALL, to=["tool"], id="p1") is None
            await knows(b, "p1")
            asked = await ask(eve)
            status, done = await confirm(move(eve, a), asked, who="eve")
            assert status == 200, done
            assert (await tool.hear("mcp/request"))["id"] == done["request_id"]
            eve.token = ""
            for each in (a, b):
                status, refused = await move(eve, each).sign_in()
                assert (status, "identity provider" in refused["message"]) == (403, True)
            # Out at one gateway: with the token of that sign-in, the key confirms nothing at the other.
            assert await agent.refused("mcp/proposal", CALL, to=["tool"], id="p2") is None
            await knows(b, "p2")
            eve.token = provider.token("u-eve", seconds=90)
            asked = await ask(move(eve, b), "p2")
            headers = {"Authorization": f"Bearer {eve.token}"}
            assert (await a.http.post("/oidc/sign-out", headers=headers)).status_code == 200
            assert (await confirm(eve, asked, "p2", "eve"))[0] in (401, 403)
