"""`gateway.mcp`: MCP at the gateway's address, for tokens of the gateway and of a provider."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from mcp import Client
from moot.config import load
from moot.config.gateway_config import McpEndpointConfig
from moot.errors import UsageError
from moot.gateway.app import Gateway
from moot.participant import JoinedSpace, connect
from moot.protocol.operation import Json
from moot.up import mcp_endpoint
from moot.up.mcp_endpoint import serve_mcp
from tests.authority import Authority
from tests.bridges.people.people_space import LISTS, META, RULES
from tests.bridges.served_space import HOST, PROPOSER, offer_files
from tests.gateway.running_gateway import (
    LocalGateway,
    gateway_settings,
    participants,
    running_gateway,
    space_settings,
    write_config,
)
from tests.gateway.sign_in.oidc_provider import AUDIENCE, Provider, running_provider
from tests.waiting import HANG_SECONDS, until, until_told

# As clients know it: a proxy in front takes /moot away.
RESOURCE = "https://moot.example.org/moot/mcp"
READ, CALL = "moot:read", "moot:call"


class Endpoint:
    """`files` offers things, `root` and `ana` are members with tokens of the gateway."""

    def __init__(self, gateway: LocalGateway, provider: Provider, stack: AsyncExitStack) -> None:
        self.gateway = gateway
        self.provider = provider
        self.url = f"{gateway.url}/mcp"
        self._stack = stack

    @property
    def http(self) -> httpx.AsyncClient:
        return self.gateway.http

    def jwt(self, name: str, *scopes: str, **claims: Any) -> str:
        told: dict[str, Any] = {"aud": RESOURCE, "scope": " ".join(scopes or (READ, CALL)), "seconds": 3_600}
        told["client_id"] = "editor"
        return self.provider.token(f"u-{name}", **(told | claims))

    async def join(self, name: str) -> JoinedSpace:
        return await self._stack.enter_async_context(connect(self.gateway.url, "lab", f"t-{name}"))

    async def ask(self, token: str | None, method: str, **params: Any) -> httpx.Response:
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
        headers["Accept"] = "application/json, text/event-stream"
        if "name" in params:
            headers["Mcp-Name"] = params["name"]
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        body: Json = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
        return await self.http.post("/mcp", json=body, headers=headers)

    async def call(self, token: str, name: str, **arguments: Any) -> str:
        answer = await self.ask(token, "tools/call", name=name, arguments=arguments)
        assert answer.status_code == 200, answer.text
        return "\n".join(part["text"] for part in answer.json()["result"]["content"])

    async def lists(self, token: str, tool: str) -> bool:
        answer = await self.ask(token, "tools/list")
        assert answer.status_code in (200, 503), answer.text
        return answer.status_code == 200 and f'"{tool}"' in answer.text


@asynccontextmanager
async def endpoint(
    folder: Path, mcp: Json | None = None, *, oidc: bool = True, **gateway: Json
) -> AsyncIterator[Endpoint]:
    people: dict[str, Any] = {"root": ["*"], "files": HOST, "mcp": LISTS, "ana": [*PROPOSER, *LISTS]}
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(running_provider())
        entry: Json = {"space": "lab", "server": "mcp", "resource": RESOURCE}
        more: dict[str, Json] = {"mcp": mcp or {"server": "mcp", "decision_seconds": 0.05}}
        if oidc:
            scoped = entry | {"read_scope": READ, "call_scope": CALL}
            more["oidc"] = provider.rules(*RULES, mcp=scoped)
        running = await stack.enter_async_context(
            running_gateway(folder, participants(**people), **(more | gateway))
        )
        if oidc:
            service = running.gateway.sign_in
            assert service is not None
            await until(lambda: service.keys[0]._fetched_at is not None)
        await stack.enter_async_context(serve_mcp(running.gateway))
        made = Endpoint(running, provider, stack)
        offer_files(await made.join("files"))
        await until_told(lambda: made.lists("t-root", "write_file"))
        yield made


async def test_static_tokens_and_those_of_a_provider_act_as_their_own_member(tmp_path: Path) -> None:
    async with endpoint(tmp_path) as served:
        root = await served.join("root")
        assert await served.call("t-root", "write_file", path="a", text="by root") == "wrote a"
        boss = served.jwt("boss")
        assert await served.call(boss, "write_file", path="b", text="by the boss") == "wrote b"
        for token, name in (("t-ana", "ana"), (served.jwt("bob"), "bob")):
            assert "PENDING" in await served.call(token, "write_file", path="c", text=f"by {name}")
            (proposal,) = await until(lambda: root.proposals.open())
            assert proposal.proposer == name
            # What waits is theirs alone.
            assert "write_file" in await served.call(token, "moot_status")
            assert "write_file" not in await served.call(boss, "moot_status")
            await root.approve(proposal.id)
            await until_told(partial(_is_told, served, token, proposal.id, "wrote c"))


async def _is_told(served: Endpoint, token: str, handle: str, result: str) -> bool:
    return result in await served.call(token, "moot_status", handle=handle, wait_seconds=1)


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_the_official_client_works_in_both_eras(tmp_path: Path, mode: Any) -> None:
    from httpx2 import AsyncClient
    from mcp.client.streamable_http import streamable_http_client

    async with (
        endpoint(tmp_path, oidc=False) as served,
        AsyncClient(headers={"Authorization": "Bearer t-root"}, timeout=HANG_SECONDS) as http,
        Client(streamable_http_client(served.url, http_client=http), mode=mode) as client,
    ):
        assert "cannot be reached" not in (client.instructions or "")
        listed = await client.list_tools()
        assert "write_file" in {tool.name for tool in listed.tools}
        done = await client.call_tool("write_file", {"path": "a", "text": "x"})
        assert "wrote a" in str(done.content)


async def test_the_metadata_is_below_the_prefix_and_at_the_root(tmp_path: Path) -> None:
    """RFC 9728. The proxy passes on what is below /moot without that; clients may also look at the root."""
    async with endpoint(tmp_path) as served:
        refused = await served.ask(None, "tools/list")
        assert refused.status_code == 401
        told = refused.headers["www-authenticate"]
        below = "https://moot.example.org/moot/.well-known/oauth-protected-resource/mcp"
        assert told == f'Bearer resource_metadata="{below}", scope="{READ}"'
        for path in ("/mcp", "/moot/mcp"):
            document = await served.http.get(f"/.well-known/oauth-protected-resource{path}")
            assert document.json()["resource"] == RESOURCE
            assert document.json()["authorization_servers"] == [served.provider.issuer]
        assert (await served.http.get("/.well-known/oauth-protected-resource/x")).status_code == 404
        strange = await served.http.get("/mcp", headers={"Host": "evil.example"})
        assert strange.status_code == 421
        page = await served.http.get("/mcp", headers={"Origin": "https://evil.example"})
        assert page.status_code == 403
        assert "gateway.allowed_origins" in page.text


async def test_without_a_provider_clients_are_told_of_a_token_and_nothing_else(tmp_path: Path) -> None:
    async with endpoint(tmp_path, oidc=False) as served:
        refused = await served.ask(None, "tools/list")
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert (await served.http.get("/.well-known/oauth-protected-resource/mcp")).status_code == 404
        assert (await served.ask(served.jwt("boss"), "tools/list")).status_code == 401


async def test_no_other_token_is_taken(tmp_path: Path) -> None:
    async with endpoint(tmp_path) as served:
        (own,) = served.gateway.gateway.directory.own_tokens
        for what, token in (
            ("for the gateway", served.jwt("boss", aud=AUDIENCE)),
            ("for another server", served.jwt("boss", aud="https://else.example/mcp")),
            ("expired", served.jwt("boss", seconds=-3_600)),
            ("of nobody", "t-nobody"),
            ("the hash of a token of ours", own),
            ("too long", "e" * 9_000),
        ):
            refused = await served.ask(token, "tools/list")
            assert refused.status_code == 401, what
            assert 'error="invalid_token"' in refused.headers["www-authenticate"], what
        in_address = await served.http.post("/mcp?access_token=t-root", json={})
        assert in_address.status_code == 401
        # A token for this endpoint opens nothing else of the gateway.
        headers = {"Authorization": f"Bearer {served.jwt('boss')}"}
        assert (await served.http.get("/spaces", headers=headers)).status_code == 401


async def test_a_token_that_is_void_ends_its_connection_and_no_other(tmp_path: Path) -> None:
    both: Json = {"capabilities": PROPOSER, "tokens": ["t-ana", "t-other"]}
    spaces: Json = {"lab": space_settings(participants(root=["*"], files=HOST, mcp=LISTS, ana=both))}
    async with running_gateway(tmp_path, spaces=spaces, mcp={"server": "mcp"}) as gateway:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(serve_mcp(gateway.gateway))
            served = Endpoint(gateway, Provider(), stack)
            for token in ("t-ana", "t-other"):
                await until_told(partial(served.lists, token, "moot_chat"))
            file = tmp_path / "moot.yaml"
            file.write_text(file.read_text().replace("t-other", "t-third"))
            gateway.gateway.reload(load(file, environ={}))
            # At once, long before it would be looked up again.
            await until_told(lambda: _is_refused(served, "t-other"))
            assert await served.lists("t-ana", "moot_chat")
        assert (await served.ask("t-ana", "tools/list")).status_code == 503


async def _is_refused(served: Endpoint, token: str) -> bool:
    return (await served.ask(token, "tools/list")).status_code == 401


async def test_connections_of_the_endpoint_count_for_no_address(tmp_path: Path) -> None:
    """Each member has one, and all of them are of the gateway's own process."""
    names = [f"m-{number}" for number in range(6)]
    people = participants(mcp=LISTS, **dict.fromkeys(names, PROPOSER))
    async with (
        running_gateway(tmp_path, people, mcp={"server": "mcp"}, max_connections_per_address=2) as gateway,
        AsyncExitStack() as stack,
    ):
        await stack.enter_async_context(serve_mcp(gateway.gateway))
        served = Endpoint(gateway, Provider(), stack)
        for name in names:
            await until_told(partial(served.lists, f"t-{name}", "moot_chat"))
        present = gateway.gateway.directory.hosts["lab"].space.state.roster.present()
        assert {str(each.name) for each in present} == {"mcp", *names}


async def test_max_people_and_idle_seconds_bound_who_is_connected(tmp_path: Path) -> None:
    people = participants(mcp=LISTS, ana=PROPOSER, bob=PROPOSER)
    mcp: Json = {"server": "mcp", "max_people": 1}
    async with running_gateway(tmp_path, people, mcp=mcp) as gateway, AsyncExitStack() as stack:
        await stack.enter_async_context(serve_mcp(gateway.gateway))
        served = Endpoint(gateway, Provider(), stack)
        roster = gateway.gateway.directory.hosts["lab"].space.state.roster

        def present() -> set[str]:
            return {str(each.name) for each in roster.present()}

        for name in ("ana", "bob"):
            await until_told(partial(served.lists, f"t-{name}", "moot_chat"))
        await until(lambda: present() == {"mcp", "bob"})


async def test_a_server_that_is_removed_serves_nobody(tmp_path: Path) -> None:
    async with endpoint(tmp_path, oidc=False) as served:
        root = await served.join("root")
        await root.admin.kick("mcp")
        await until_told(lambda: _is_not_ready(served))


async def _is_not_ready(served: Endpoint) -> bool:
    return (await served.ask("t-root", "tools/list")).status_code == 503


@pytest.mark.parametrize(
    ("mcp", "why"),
    [
        ({"server": "nobody"}, "no participant"),
        ({"server": "mcp", "path": "/ws"}, "path"),
        ({"server": "mcp", "path": "/mcp/"}, "path"),
        ({"server": "mcp", "space": "else"}, "no space"),
        ([{"server": "mcp"}, {"server": "mcp"}], "twice"),
        ({}, "missing"),
        ({"server": "mcp", "max_people": 0}, "max_people"),
        ({"server": "mcp", "path": "/mcp/lab"}, "has to end in"),
    ],
)
def test_a_wrong_section_says_what_is_wrong(tmp_path: Path, mcp: Json, why: str) -> None:
    oidc: dict[str, Json] = {"issuer": "https://id.example", "audience": "moot", "people": [RULES[0]]}
    oidc["mcp"] = {"space": "lab", "server": "mcp", "resource": RESOURCE}
    spaces: Json = {"lab": space_settings(participants(mcp=LISTS))}
    with pytest.raises(UsageError, match=why):
        load(write_config(tmp_path, gateway_settings(spaces, oidc=oidc, mcp=mcp)), environ={})


def test_it_is_off_by_default_and_a_space_is_found_where_there_is_one(tmp_path: Path) -> None:
    spaces: Json = {"lab": space_settings(participants(mcp=LISTS))}
    file = write_config(tmp_path, gateway_settings(spaces))
    assert load(file, environ={}).gateway.mcp == ()
    file = write_config(tmp_path, gateway_settings(spaces, mcp={"server": "mcp"}))
    assert load(file, environ={}).gateway.mcp == (McpEndpointConfig(server="mcp", space="lab"),)


async def test_a_disk_that_was_full_for_a_moment_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, attempts = mcp_endpoint._kept_secret, list[Path]()

    def fail_first(file: Path) -> str:
        attempts.append(file)
        if len(attempts) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return make(file)

    monkeypatch.setattr(mcp_endpoint, "_kept_secret", fail_first)
    monkeypatch.setattr(mcp_endpoint, "_RETRY_SECONDS", 0.01)
    async with endpoint(tmp_path, oidc=False) as served:
        assert await served.call("t-root", "write_file", path="a", text="b") == "wrote a"
    assert len(attempts) == 2


async def test_links_for_people_lead_to_other_machines_under_tls_too(tmp_path: Path) -> None:
    """Not to the port of this machine that needs no certificate."""
    people = participants(root=["*"], mcp=LISTS)
    certificate, key = Authority(tmp_path, "ca").issue("server")
    key.chmod(0o600)
    tls: Json = {"certificate": str(certificate), "key": str(key)}
    spaces: Json = {"lab": space_settings(people)}
    file = write_config(tmp_path, gateway_settings(spaces, tls=tls, mcp={"server": "mcp"}))
    gateway = Gateway(load(file, environ={}))
    await gateway.start()
    try:
        (config,) = gateway.config.mcp
        exchange = mcp_endpoint.LocalExchange(gateway, config)
        told = mcp_endpoint._person_settings(gateway, config, tmp_path, exchange)
        assert (told.backend.console, gateway.url.startswith("https://")) == (gateway.url, True)
    finally:
        await gateway.stop()
