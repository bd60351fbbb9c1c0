"""`gateway.mcp` in a cluster: each gateway serves its own, for the same members and tools."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial

from moot.participant import connect
from moot.protocol.operation import Json
from moot.up.mcp_endpoint import serve_mcp
from tests.bridges.served_space import offer_files
from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.sign_in.oidc_provider import person, running_provider
from tests.gateway.sign_in.test_sign_in import has_keys
from tests.up.test_mcp_endpoint import RESOURCE, Endpoint
from tests.waiting import until, until_told


async def test_members_call_at_any_gateway_with_tokens_of_the_gateways_and_of_a_provider(
    start: StartGateway,
) -> None:
    async with running_provider() as provider, AsyncExitStack() as stack:
        entry: Json = {"space": "lab", "server": "carol", "resource": RESOURCE}
        oidc = provider.rules(person(capabilities=["*"]), mcp=entry)
        a = await stack.enter_async_context(start("a", oidc=oidc, mcp={"server": "carol"}))
        b = await stack.enter_async_context(start("b", oidc=oidc, mcp={"server": "carol"}))
        await until(lambda: has_keys(a) and has_keys(b))
        kept = offer_files(await stack.enter_async_context(connect(a.url, "lab", "t-bob")))
        for gateway in (a, b):
            await stack.enter_async_context(serve_mcp(gateway.gateway))
            served = Endpoint(gateway, provider, stack)
            for token, path in (("t-alice", f"{gateway.port}-1"), (served.jwt("ana"), f"{gateway.port}-2")):
                await until_told(partial(served.lists, token, "write_file"))
                assert await served.call(token, "write_file", path=path, text="x") == f"wrote {path}"
        written = {f"{gateway.port}-{number}" for gateway in (a, b) for number in (1, 2)}
        assert written <= set(kept)
