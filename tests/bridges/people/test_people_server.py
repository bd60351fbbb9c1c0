"""Many people at one MCP endpoint, each with rights, calls and sessions of their own, by their token."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from moot.bridges.people.person_server import PersonServer
from moot.config import hash_token, load
from tests.bridges.people.people_space import CALL, READ, RULES, PeopleSpace, people_space
from tests.bridges.served_space import offer_files
from tests.gateway.sign_in.oidc_provider import AUDIENCE, Key, person
from tests.waiting import until, until_told

WRITE: dict[str, Any] = {"name": "write_file", "arguments": {"path": "b", "text": "new"}}


async def call(people: PeopleSpace, token: str, name: str, **arguments: Any) -> str:
    answer = await people.ask(token, "tools/call", name=name, arguments=arguments)
    assert answer.status_code == 200, answer.text
    return "\n".join(part["text"] for part in answer.json()["result"]["content"])


async def tools_of(people: PeopleSpace, token: str) -> dict[str, str]:
    """The members' tools that are listed, and what may be done with each."""
    answer = await people.ask(token, "tools/list")
    assert answer.status_code == 200, answer.text
    assert answer.json()["result"]["cacheScope"] == "private"
    listed = answer.json()["result"]["tools"]
    return {tool["name"]: tool["_meta"]["moot/access"] for tool in listed if "_meta" in tool}


# Each is who they are


async def test_people_act_in_their_own_name_with_their_own_rights_and_pending_calls(tmp_path: Path) -> None:
    async with people_space(tmp_path) as people:
        kept = offer_files(await people.join("files"))
        root = await people.join("root")
        boss, ana, bob = people.token("boss"), people.token("ana"), people.token("bob")
        await until_told(lambda: tools_of(people, boss))
        assert set((await tools_of(people, boss)).values()) == {"request"}
        assert set((await tools_of(people, ana)).values()) == {"propose"}
        assert await call(people, boss, "write_file", path="a.txt", text="by the boss") == "wrote a.txt"
        assert "PENDING" in await call(people, ana, "write_file", path="b", text="by ana")
        (proposal,) = await until(lambda: root.proposals.open())
        assert proposal.proposer == "ana"
        assert "b" not in kept
        # What ana waits for is hers alone, also for the boss, who may do everything.
        assert "write_file" in await call(people, ana, "moot_status")
        for other in (boss, bob):
            assert "write_file" not in await call(people, other, "moot_status")
        await root.approve(proposal.id)
        handle = proposal.id
        assert "wrote b" in await call(people, ana, "moot_status", handle=handle, wait_seconds=10)
        assert "wrote b" not in str(
            (await people.ask(bob, "tools/call", name="moot_status", arguments={"handle": handle})).json()
        )
        assert kept == {"a.txt": "by the boss", "b": "by ana"}
        assert set(root.roster) >= {"ana", "bob", "boss", "mcp"}


async def test_a_person_hears_little_and_is_told_of_everybody_and_all_that_was_said(tmp_path: Path) -> None:
    async with people_space(tmp_path) as people:
        root = await people.join("root")
        ana, bob = people.token("ana"), people.token("bob")
        for person in (ana, bob):
            await call(people, person, "moot_chat", text="hello")
        here = await call(people, ana, "moot_participants")
        assert all(f"- {name}:" in here for name in ("bob", "root", "mcp"))
        assert "- ana:" not in here
        await root.chat("to all")

        async def is_shown() -> bool:
            return "root: to all" in await call(people, bob, "moot_chat")

        await until_told(is_shown)
        connected = {each.grant.participant_id: each._joined for each in people.people.people.values()}
        assert connected["ana"] is not None
        assert "bob" not in connected["ana"].roster
        assert set(connected["ana"].roster) == {"root", "mcp"}


async def test_both_eras_and_a_session_is_its_persons_alone(tmp_path: Path) -> None:
    """A session id that somebody else sends, or another client of the same person, is unknown."""
    async with people_space(tmp_path) as people:
        ana = people.token("ana")
        opened = await people.initialize(ana)
        assert opened.status_code == 200, opened.text
        session = opened.headers["mcp-session-id"]
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        headers = {"Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-11-25"}
        done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await people.post(ana, done, **headers)).status_code == 202
        assert "moot_chat" in (await people.post(ana, listing, **headers)).text
        # A renewed token of the same person goes on with it.
        renewed = people.token("ana", jti="renewed")
        assert "moot_chat" in (await people.post(renewed, listing | {"id": 3}, **headers)).text
        for thief in (people.token("bob"), people.token("boss"), people.token("ana", client_id="other")):
            assert (await people.post(thief, listing | {"id": 4}, **headers)).status_code == 404
            stolen = {"Authorization": f"Bearer {thief}", "Mcp-Session-Id": session}
            assert (await people.http.delete(people.url, headers=stolen)).status_code == 404
            read = await people.http.get(people.url, headers=stolen | {"Accept": "text/event-stream"})
            assert read.status_code == 404
        assert (await people.post(None, listing, **headers)).status_code == 401
        assert "moot_chat" in (await people.post(ana, listing | {"id": 5}, **headers)).text


async def test_clients_that_the_provider_does_not_name_are_told_apart_by_whom_their_tokens_are_for(
    tmp_path: Path,
) -> None:
    """As of Canaille: an agent does not act with what its person may do at another client."""
    rules = (person(match={"aud": "desk"}, capabilities=["*"]), RULES[1])
    async with people_space(tmp_path, *rules) as people:
        kept = offer_files(await people.join("files"))
        agent, desk = (
            people.token("ana", aud=[client, people.url], without=("client_id",), seconds=seconds)
            for client, seconds in (("agent", 3_500), ("desk", 3_600))
        )
        for token in (agent, desk):
            await until_told(partial(tools_of, people, token))
        assert await call(people, desk, "write_file", path="a", text="by ana") == "wrote a"
        assert "PENDING" in await call(people, agent, "write_file", path="b", text="by her agent")
        assert set(kept) == {"a.txt", "a"}
        session = (await people.initialize(desk)).headers["mcp-session-id"]
        listing: Any = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        assert (await people.post(agent, listing, **{"Mcp-Session-Id": session})).status_code == 404


# What clients are told


async def test_a_client_learns_where_to_sign_in_for_what(tmp_path: Path) -> None:
    """RFC 9728, and MCP 2026-07-28."""
    async with people_space(tmp_path) as people:
        answer = await people.ask(None, "tools/list")
        assert answer.status_code == 401
        where = people.url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
        assert answer.headers["www-authenticate"] == f'Bearer resource_metadata="{where}", scope="{READ}"'
        document = await people.http.get(where)
        assert document.json() == {
            "resource": people.url,
            "authorization_servers": [people.provider.issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "Moot space lab",
            "scopes_supported": [READ, CALL],
        }
        assert document.headers["access-control-allow-origin"] == "*"
        assert (await people.http.get(people.url.replace("/mcp", "/other"))).status_code == 404
        strange = await people.http.get(where, headers={"Host": "evil.example"})
        assert strange.status_code == 421
        page = await people.ask(None, "tools/list")
        assert "Set-Cookie" not in page.headers


async def test_a_scope_that_is_missing_is_asked_for_and_the_gateway_holds_the_same_line(
    tmp_path: Path,
) -> None:
    async with people_space(tmp_path) as people:
        offer_files(await people.join("files"))
        none, reading = people.token("boss", "openid"), people.token("boss", READ)
        refused = await people.ask(none, "tools/list")
        assert refused.status_code == 403
        assert 'error="insufficient_scope"' in refused.headers["www-authenticate"]
        assert f'scope="{READ}"' in refused.headers["www-authenticate"]
        await until_told(lambda: _reads(people, reading))
        # What the person could call with more is listed, or nobody would ever ask for it.
        assert (await tools_of(people, reading))["write_file"] == "request"
        assert "boss" in await call(people, reading, "moot_participants")
        for method, params in (
            ("tools/call", WRITE),
            ("tools/call", {"name": "moot_chat", "arguments": {"text": "hi"}}),
            ("tools/call", {"name": "moot_status", "arguments": {"handle": "x", "withdraw": True}}),
        ):
            refused = await people.ask(reading, method, **params)
            assert refused.status_code == 403, refused.text
            answer = refused.headers["www-authenticate"]
            assert 'error="insufficient_scope"' in answer
            # All that the call needs, at once.
            assert f'scope="{READ} {CALL}"' in answer
            assert "resource_metadata=" in answer
        # In the handshake era as well.
        session = (await people.initialize(reading)).headers["mcp-session-id"]
        asked = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": WRITE}
        assert (await people.post(reading, asked, **{"Mcp-Session-Id": session})).status_code == 403
        # The server could not do it if it wanted to.
        (server,) = people.people.people.values()
        assert server._joined is not None
        assert not server._joined.may_request("files", "tools/call", {"name": "write_file"})
        assert server._joined.may_request("files", "resources/read", {"uri": "file:///a.txt"})
        assert not server._joined.may("chat", {"text": "hi"})
        # With more, the same session goes on; a token with less gets no more by that.
        wider = people.token("boss", READ, CALL)
        done = await people.post(wider, asked | {"id": 8}, **{"Mcp-Session-Id": session})
        assert "wrote b" in done.text
        assert (
            await people.post(reading, asked | {"id": 9}, **{"Mcp-Session-Id": session})
        ).status_code == 403
        assert list(people.people.people.values()) == [server]


async def _reads(people: PeopleSpace, token: str) -> bool:
    answer = await people.ask(token, "resources/list")
    assert answer.status_code == 200, answer.text
    return bool(answer.json()["result"]["resources"])


async def test_without_scopes_in_the_configuration_none_is_asked_for(tmp_path: Path) -> None:
    async with people_space(tmp_path, scopes=False) as people:
        offer_files(await people.join("files"))
        answer = await people.ask(None, "tools/list")
        assert "scope=" not in answer.headers["www-authenticate"]
        boss = people.token("boss", "openid")
        await until_told(lambda: tools_of(people, boss))
        assert await call(people, boss, "write_file", path="b", text="x") == "wrote b"


# Who is nobody


async def test_no_other_token_lets_anybody_in(tmp_path: Path) -> None:
    rows: list[tuple[str, dict[str, Any], str]] = [
        ("for the gateway", {"aud": AUDIENCE}, "for somebody else"),
        ("for another server", {"aud": "https://else.example/mcp"}, "for somebody else"),
        ("for a longer address", {"aud": "{}/more"}, "for somebody else"),
        ("expired", {"seconds": -3_600}, "expired"),
        ("no access token", {"header": {"typ": "JWT"}}, "no access token"),
        ("of another key", {"key": Key("k")}, "key"),
        ("of another issuer", {"iss": "https://else.example"}, "does not know"),
    ]
    async with people_space(tmp_path) as people:
        for what, claims, message in rows:
            filled = {
                key: value.format(people.url) if key == "aud" else value for key, value in claims.items()
            }

            async def refusal(token: str = people.token("ana", **filled)) -> Any:
                """A key that nobody has is looked for once, and then it is wrong."""
                answer = await people.ask(token, "tools/list")
                return answer if answer.status_code != 503 else None

            answer = await until_told(refusal)
            assert answer.status_code == 401, what
            assert 'error="invalid_token"' in answer.headers["www-authenticate"], what
            assert "resource_metadata=" in answer.headers["www-authenticate"], what
            assert message in answer.text, what
        assert not people.people.people


async def test_tokens_of_the_gateway_and_tokens_in_addresses_are_none_here(tmp_path: Path) -> None:
    """No static token of a member is taken, and none stands in an address."""
    async with people_space(tmp_path) as people:
        for token in ("t-root", "t-mcp", "x.y", "a.b.c", "e" * 9_000):
            assert (await people.ask(token, "tools/list")).status_code == 401, token
        good = people.token("ana")
        asked = await people.http.post(f"{people.url}?access_token={good}", json={})
        assert asked.status_code == 401
        with_both = await people.http.get(
            f"{people.url}?access_token={good}", headers={"Authorization": f"Bearer {good}"}
        )
        assert with_both.status_code == 401


async def test_a_token_for_the_mcp_server_opens_nothing_at_the_gateway(tmp_path: Path) -> None:
    """No token passthrough: what a client sends is good for this server alone, before and after its use."""
    async with people_space(tmp_path) as people:
        token = people.token("boss")
        headers = {"Authorization": f"Bearer {token}"}
        for _ in range(2):
            assert (await people.gateway.http.get("/spaces", headers=headers)).status_code == 401
            refused = await people.gateway.http.post("/participants/boss/messages", json={}, headers=headers)
            assert refused.status_code == 403
            assert (await people.ask(token, "tools/list")).status_code == 200
        # Nor can its client, or any other member, exchange it.
        form = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "subject_token": token,
            "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
        }
        for other, status in ((token, 401), ("t-root", 403), ("t-files", 403), ("t-nobody", 401)):
            asked = await people.gateway.http.post(
                "/oidc/token?space=lab", data=form, headers={"Authorization": f"Bearer {other}"}
            )
            assert asked.status_code == status, other


async def test_who_may_not_enter_is_told_so_and_asked_for_no_scope(tmp_path: Path) -> None:
    async with people_space(tmp_path, person(match={"sub": "u-boss"})) as people:
        refused = await people.ask(people.token("ana"), "tools/list")
        assert refused.status_code == 403
        assert "www-authenticate" not in refused.headers
        assert "no rule" in refused.text


async def test_too_many_wrong_tokens_are_told_no_reason_and_a_good_one_still_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.bridges.people.people_server.WRONG_TOKENS_PER_MINUTE", 2)
    async with people_space(tmp_path) as people:
        wrong = [await people.ask(f"a.b.{n}", "tools/list") for n in range(4)]
        assert [answer.status_code for answer in wrong] == [401, 401, 429, 429]
        assert int(wrong[-1].headers["retry-after"]) > 0
        assert (await people.ask(people.token("ana"), "tools/list")).status_code == 200


# How it ends


async def test_a_sign_out_ends_the_connection_at_once_and_the_token_for_good(tmp_path: Path) -> None:
    async with people_space(tmp_path) as people:
        token = people.token("ana", sid="s-1")
        assert (await people.ask(token, "tools/list")).status_code == 200
        assert len(people.people.people) == 1
        form = {"logout_token": people.provider.logout_token(sub="u-ana", sid="s-1")}
        reply = await people.gateway.http.post("/oidc/backchannel-logout", data=form)
        assert reply.status_code == 200, reply.text
        await until(lambda: not people.people.people)
        answer = await people.ask(token, "tools/list")
        assert answer.status_code == 401
        assert "signed out" in answer.text
        # Those of others go on.
        assert (await people.ask(people.token("bob"), "tools/list")).status_code == 200


async def test_a_token_that_the_provider_takes_back_ends_here_too(tmp_path: Path) -> None:
    """RFC 7662: of the token that the client sent, not of the one that it was exchanged for."""
    asked: Any = {"client_id": "gateway", "client_secret_env": "SECRET", "interval_seconds": 0.05}
    async with people_space(tmp_path, oidc={"introspection": asked}) as people:
        token, other = people.token("ana", jti="1"), people.token("bob", jti="2")
        for each in (token, other):
            assert (await people.ask(each, "tools/list")).status_code == 200
        people.provider.revoked.add(token)
        await until(lambda: len(people.people.people) == 1)
        answer = await people.ask(token, "tools/list")
        assert (answer.status_code, "signed out" in answer.text) == (401, True)
        assert (await people.ask(other, "tools/list")).status_code == 200
        assert {each for each, _ in people.provider.introspected} == {token, other}


@pytest.mark.parametrize("ends", ["revoked", "logout"])
async def test_a_token_beside_a_newer_one_of_the_same_client_ends_alone(
    tmp_path: Path, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection has gone on under the newer one, so it does not tell when the older one is void."""
    asked: Any = {"client_id": "gateway", "client_secret_env": "SECRET", "interval_seconds": 0.05}
    monkeypatch.setattr("moot.bridges.people.people_server.RECHECK_SECONDS", 0.05)
    async with people_space(tmp_path, oidc={"introspection": asked}) as people:
        older, newer = people.token("ana", jti="1", sid="s-1"), people.token("ana", sid="s-2", seconds=3_700)
        session = (await people.initialize(older)).headers["mcp-session-id"]
        assert (await people.ask(newer, "tools/list")).status_code == 200
        if ends == "revoked":
            people.provider.revoked.add(older)
        else:
            form = {"logout_token": people.provider.logout_token(sub="u-ana", sid="s-1")}
            told = await people.gateway.http.post("/oidc/backchannel-logout", data=form)
            assert told.status_code == 200

        async def is_refused() -> bool:
            return (await people.ask(older, "tools/list")).status_code == 401

        await until_told(is_refused)
        # The same session, of the same person at the same client, goes on with the newer one.
        listing: Any = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        answer = await people.post(newer, listing, **{"Mcp-Session-Id": session})
        assert (answer.status_code, "moot_chat" in answer.text) == (200, True)


async def test_a_token_that_ends_is_renewed_by_the_next_one_on_the_same_connection(tmp_path: Path) -> None:
    async with people_space(tmp_path) as people:
        root = await people.join("root")
        assert (await people.ask(people.token("ana", seconds=20), "tools/list")).status_code == 200
        (first,) = people.people.people.values()
        before = first.grant.access_token
        assert (await people.ask(people.token("ana", seconds=50), "tools/list")).status_code == 200
        assert list(people.people.people.values()) == [first]
        assert first.grant.access_token != before
        space = people.gateway.gateway.directory.hosts["lab"].space

        def tokens_in_use() -> set[str | None]:
            member = space.state.roster.members["ana"]  # type: ignore[index]  # a plain name is enough here
            return {session.options.token for session in member.sessions.values()}

        await until(lambda: tokens_in_use() == {hash_token(first.grant.access_token)})
        # An older one that comes again changes nothing.
        newest = first.grant.access_token
        assert (await people.ask(people.token("ana", seconds=10, jti="old"), "tools/list")).status_code == 200
        assert first.grant.access_token == newest
        assert "ana" in root.roster


async def test_a_session_outlives_its_token_for_the_same_person_and_client(tmp_path: Path) -> None:
    """SDK clients of the handshake era know no way back from 404; usual tokens last for minutes."""
    async with people_space(tmp_path, oidc={"skew_seconds": 0, "renew_grace_seconds": 0}) as people:
        opened = await people.initialize(people.token("ana", seconds=2))
        while opened.status_code == 401:
            # It had expired before it was looked at.
            opened = await people.initialize(people.token("ana", seconds=2))
        session = opened.headers["mcp-session-id"]
        (server,) = people.people.people.values()
        await until(lambda: server._joined is None and asyncio.get_running_loop().time() > server._expires_at)
        listing: Any = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        headers = {"Mcp-Session-Id": session}
        thief = people.token("ana", client_id="other")
        assert (await people.post(thief, listing, **headers)).status_code == 404
        answer = await people.post(people.token("ana"), listing, **headers)
        assert answer.status_code == 200, answer.text
        assert "moot_chat" in answer.text
        # Signed out is another matter.
        await people.gateway.http.post(
            "/oidc/backchannel-logout",
            data={"logout_token": people.provider.logout_token(sub="u-ana", iat=int(time.time()) + 1)},
        )
        await until(lambda: server.is_ended)


async def test_idle_people_leave_the_space_and_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.bridges.people.people_server.IDLE_SECONDS", 0.05)
    async with people_space(tmp_path) as people:
        root = await people.join("root")
        token = people.token("ana")
        assert (await people.ask(token, "tools/list")).status_code == 200
        await until(lambda: not people.people.people)
        await until(lambda: "ana" not in root.roster)
        assert (await people.ask(token, "tools/list")).status_code == 200


async def test_whoever_is_one_too_many_takes_the_place_of_who_is_idle_longest(tmp_path: Path) -> None:
    async with people_space(tmp_path, max_people=2) as people:
        for name in ("ana", "bob", "boss"):
            assert (await people.ask(people.token(name), "tools/list")).status_code == 200
        assert {each.grant.participant_id for each in people.people.people.values()} == {"bob", "boss"}
        for each in people.people.people.values():
            each.open_requests += 1
        refused = await people.ask(people.token("ana"), "tools/list")
        assert refused.status_code == 503
        assert "retry-after" in refused.headers


async def test_the_gateway_comes_back_and_people_with_it(tmp_path: Path) -> None:
    """Nobody is believed after a restart: the server brings the person's token again, by itself."""
    async with people_space(tmp_path) as people:
        token = people.token("ana")
        session = (await people.initialize(token)).headers["mcp-session-id"]
        (server,) = people.people.people.values()
        await until(lambda: server._joined is not None)
        before = server.grant.access_token
        await people.restart_gateway()
        await until(lambda: server._joined is not None and server.grant.access_token != before)
        listing: Any = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        answer = await people.post(token, listing, **{"Mcp-Session-Id": session})
        assert answer.status_code == 200, answer.text
        assert list(people.people.people.values()) == [server]


async def test_other_rules_give_a_token_no_more_than_its_scopes_did(tmp_path: Path) -> None:
    async with people_space(tmp_path) as people:
        assert (await people.ask(people.token("boss", READ), "tools/list")).status_code == 200
        tokens = people.gateway.gateway.directory.hosts["lab"].space.state.temporary_tokens
        (before,) = tokens.by_hash.values()
        assert before.limited_to is not None
        file = tmp_path / "moot.yaml"
        file.write_text(file.read_text().replace("u-boss", "u-b*"))
        people.gateway.gateway.reload(load(file, environ={}))
        await until(lambda: not len(people.gateway.gateway._tasks))
        (after,) = tokens.by_hash.values()
        assert after.limited_to == before.limited_to


async def test_what_is_journaled_says_whose_token_it_was_and_who_brought_it(tmp_path: Path) -> None:
    async with people_space(tmp_path) as people:
        token = people.token("ana")
        assert (await people.ask(token, "tools/list")).status_code == 200
        await until(lambda: any(each._joined for each in people.people.people.values()))
    written = b"".join(path.read_bytes() for path in sorted(tmp_path.rglob("*.jsonl")))
    assert b'"subject":"u-ana"' in written
    assert b'"by":"mcp"' in written
    for part in token.split("."):
        assert part.encode() not in written


@pytest.mark.parametrize("scopes", [True, False])
async def test_requests_with_one_new_token_ask_the_gateway_once(tmp_path: Path, scopes: bool) -> None:
    async with people_space(tmp_path, scopes=scopes) as people:
        token = people.token("ana")
        answers = await asyncio.gather(*(people.ask(token, "tools/list") for _ in range(5)))
        assert [answer.status_code for answer in answers] == [200] * 5
        state = people.gateway.gateway.directory.hosts["lab"].space.state
        assert len(state.temporary_tokens.by_hash) == 1


async def test_a_person_who_is_let_go_before_their_server_began_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their task has not had its first step; nobody else would wake up who waits for it."""
    async with people_space(tmp_path) as people:
        server = people.people
        take_in = server._take_in

        def take_in_and_end(*found: Any) -> PersonServer:
            person = take_in(*found)
            assert person.task is not None
            person.task.cancel()
            return person

        monkeypatch.setattr(server, "_take_in", take_in_and_end)
        answer = await people.ask(people.token("ana"), "tools/list")
        assert (answer.status_code, "has just ended" in answer.text) == (503, True)
        assert not server.people
