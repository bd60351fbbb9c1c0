"""A connection has the rights of its own token: what a person may do at the console, their agent may not."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.gateway.running_gateway import LocalGateway, participants, running_gateway
from tests.gateway.sign_in.oidc_provider import Provider, person, running_provider
from tests.gateway.sign_in.test_sign_in import enter, has_keys, signing_in
from tests.waiting import until

# As a company would write it: people decide at the console, their agents propose.
_FULL = person(match={"client_id": "console"}, capabilities=["chat", "mcp/*", "capability/grant"])
_PROPOSES = person(match={"sub": "*"}, capabilities=["chat", "mcp/proposal", "mcp/response"])
_CALL = {"method": "tools/call", "params": {"name": "delete_everything", "arguments": {}}}


async def _posts(gateway: LocalGateway, token: str) -> int:
    said = {"kind": "mcp/request", "to": ["root"], "payload": _CALL}
    return (await gateway.post("ana", said, token=token)).status_code


def _issued(provider: Provider, seconds_ago: int, **claims: Any) -> str:
    return provider.token(iat=int(time.time()) - seconds_ago, **claims)


async def test_an_agent_gets_no_right_when_its_owner_opens_the_console(tmp_path: Path) -> None:
    """Rules by client: the console's rights are not the agent's, not while it is open and not afterwards."""
    async with signing_in(tmp_path, _FULL, _PROPOSES) as (gateway, provider):
        await gateway.join("root")
        token = provider.token(client_id="agent")
        agent = await enter(gateway, token)
        assert await agent.refused("mcp/request", _CALL, to=["root"]) == "capability_violation"
        console = await enter(gateway, provider.token(client_id="console"))
        assert await console.refused("mcp/request", _CALL, to=["root"]) is None
        assert await agent.refused("mcp/request", _CALL, to=["root"]) == "capability_violation"
        assert await _posts(gateway, token) == 403
        await console.leave()
        assert await agent.refused("mcp/request", _CALL, to=["root"]) == "capability_violation"
        again = await enter(gateway, token)
        assert await again.refused("mcp/request", _CALL, to=["root"]) == "capability_violation"


async def test_a_refresh_of_the_agent_takes_nothing_from_its_owner(tmp_path: Path) -> None:
    async with signing_in(tmp_path, _FULL, _PROPOSES) as (gateway, provider):
        await gateway.join("root")
        console = await enter(gateway, _issued(provider, 30, client_id="console"))
        agent = await enter(gateway, _issued(provider, 20, client_id="agent"))
        await agent.send({"type": "join", "space": "lab", "token": provider.token(client_id="agent")})
        await agent.fence()
        assert await console.refused("mcp/request", _CALL, to=["root"]) is None
        assert await agent.refused("mcp/request", _CALL, to=["root"]) == "capability_violation"
        # Nor what was given with the console's rights.
        right = {"recipient": "root", "capabilities": [{"kind": "mcp/request"}], "reason": "helps"}
        assert await console.refused("capability/grant", right, to=["root"]) is None
        await enter(gateway, provider.token(client_id="agent"))
        assert len(gateway.gateway.directory.hosts["lab"].space.state.grants.by_id) == 1


async def test_an_older_token_does_not_undo_a_demotion(tmp_path: Path) -> None:
    """The groups of an account changed at the provider: a token from before gives no more than the newest."""
    rules = (person(match={"groups": "staff"}, capabilities=["chat", "mcp/*"]), _PROPOSES)
    async with signing_in(tmp_path, *rules) as (gateway, provider):
        await gateway.join("root")
        older, old = _issued(provider, 40, groups=["staff"]), _issued(provider, 30, groups=["staff"])
        before = await enter(gateway, old)
        assert await before.refused("mcp/request", _CALL, to=["root"]) is None
        demoted = await enter(gateway, provider.token(groups=[]))
        assert await demoted.refused("mcp/request", _CALL, to=["root"]) == "capability_violation"
        # At once for those that are connected, and for tokens that were never used.
        assert await before.refused("mcp/request", _CALL, to=["root"]) == "capability_violation"
        unused = await enter(gateway, older)
        assert await unused.refused("mcp/request", _CALL, to=["root"]) == "capability_violation"
        assert await _posts(gateway, older) == 403
        assert await unused.refused("chat", {"text": "what both give, stays"}) is None


async def test_a_demotion_outlives_a_restart(tmp_path: Path) -> None:
    rules = (person(match={"groups": "staff"}, capabilities=["chat", "mcp/*"]), _PROPOSES)
    async with running_provider() as provider:
        old = _issued(provider, 30, groups=["staff"])
        for has_restarted in (False, True):
            async with running_gateway(
                tmp_path, participants(root=["*"]), oidc=provider.rules(*rules)
            ) as gateway:
                await until(lambda: has_keys(gateway))
                await gateway.join("root")
                token = old if has_restarted else provider.token(groups=[])
                client = await enter(gateway, token)
                assert await client.refused("mcp/request", _CALL, to=["root"]) == "capability_violation"


async def test_a_short_lived_token_has_the_rights_of_the_token_that_made_it(tmp_path: Path) -> None:
    async with signing_in(tmp_path, _FULL, _PROPOSES) as (gateway, provider):
        await gateway.join("root")
        await enter(gateway, provider.token(client_id="console"))
        agents = provider.token(client_id="agent")
        headers = {"Authorization": f"Bearer {agents}"}
        address = "/participants/ana/tokens?space=lab"
        await enter(gateway, agents)
        wide = await gateway.http.post(
            address, json={"seconds": 20, "only": ["mcp/request"]}, headers=headers
        )
        assert wide.status_code == 403, wide.text
        made = await gateway.http.post(address, json={"seconds": 20}, headers=headers)
        assert made.status_code == 201, made.text
        program = await enter(gateway, made.json()["token"])
        assert await program.refused("mcp/request", _CALL, to=["root"]) == "capability_violation"
        assert await program.refused("chat", {"text": "as the agent may"}) is None


async def test_what_is_granted_to_a_person_is_theirs_with_every_client(tmp_path: Path) -> None:
    async with signing_in(tmp_path, _FULL, _PROPOSES) as (gateway, provider):
        root = await gateway.join("root")
        agent = await enter(gateway, provider.token(client_id="agent"))
        right = {"kind": "mcp/request", "payload": {"method": "tools/call"}}
        grant = {"recipient": "ana", "capabilities": [right], "reason": "trusted"}
        assert await root.refused("capability/grant", grant, to=["ana"]) is None
        await agent.hear("capability/grant")
        assert await agent.refused("mcp/request", _CALL, to=["root"]) is None
        assert (await root.hear("mcp/request"))["from"] == "ana"


async def test_what_an_administrator_takes_away_is_gone_from_every_connection(tmp_path: Path) -> None:
    async with signing_in(tmp_path, _FULL, _PROPOSES) as (gateway, provider):
        await gateway.join("root")
        console = await enter(gateway, provider.token(client_id="console"))
        assert await console.refused("mcp/request", _CALL, to=["root"]) is None
        answer = await gateway.admin("POST", "participants/ana/capabilities", {"remove": [{"kind": "mcp/*"}]})
        assert answer.status_code == 200, answer.text
        assert "notRemoved" not in answer.json()
        assert await console.refused("mcp/request", _CALL, to=["root"]) == "capability_violation"
