"""What becomes of a session of the official SDKs, of both eras, when its token ends or is taken back.

At the gateway's own endpoint, with two providers that others wrote.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from moot.participant import connect
from moot.protocol.operation import Json
from moot.space.config import Name
from moot.up.mcp_endpoint import serve_mcp
from tests.bridges.people.oauth_clients import WRITE, Storage, python_client, typescript_client
from tests.bridges.people.people_space import LISTS
from tests.bridges.served_space import HOST, offer_files, text_of
from tests.gateway.running_gateway import LocalGateway, participants, running_gateway
from tests.gateway.sign_in.canaille_provider import AUDIENCE as GATEWAY
from tests.gateway.sign_in.canaille_provider import PersonAtCanaille, canaille_provider, oidc_settings
from tests.gateway.sign_in.foreign_provider import AUDIENCE, Browser, PersonAtProvider, foreign_provider
from tests.gateway.sign_in.oidc_provider import person
from tests.gateway.sign_in.test_pairwise_subjects import claims_of
from tests.gateway.sign_in.test_sign_in import enter, has_keys
from tests.ports import held_port
from tests.waiting import until

# So short that a renewal is seen.
TOKEN_SECONDS, SKEW_SECONDS = 3, 3


@asynccontextmanager
async def people_endpoint(
    folder: Path, port: int, oidc: dict[str, Json], audience: str | None = None
) -> AsyncIterator[LocalGateway]:
    """A gateway that serves MCP itself to everybody whom a provider knows; `files` offers tools."""
    entry: dict[str, Json] = {"space": "lab", "server": "mcp", "resource": f"http://127.0.0.1:{port}/mcp"}
    entry |= {} if audience is None else {"audience": audience}
    people = participants(root=["*"], files=HOST, mcp=LISTS)
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(
            running_gateway(
                folder,
                people,
                port=port,
                environ={"ASK": "gateway-secret"},
                mcp={"server": "mcp"},
                oidc=oidc | {"mcp": entry},
            )
        )
        await until(lambda: has_keys(gateway))
        await stack.enter_async_context(serve_mcp(gateway.gateway))
        offer_files(await stack.enter_async_context(connect(gateway.url, "lab", "t-files")))
        yield gateway


class CountingBrowser(Browser):
    """Remembers what it was asked to open; signs in again only when `may_at` has come."""

    def __init__(self, who: str) -> None:
        super().__init__(who)
        self.opened: list[str] = []
        self.may_at = 0.0

    async def confirm(self, address: str, back: str) -> dict[str, str]:
        self.opened.append(address)
        await until(lambda: time.time() >= self.may_at)
        return await super().confirm(address, back)

    async def end_session(self, issuer: str) -> None:
        """At the provider; nobody signs in again within the same second, by which tokens are told apart."""
        await super().confirm(f"{issuer}/session/end", f"{issuer}/session/end/success")
        self.may_at = int(time.time()) + 1.0


@asynccontextmanager
async def client_of(
    sdk: str, url: str, browser: CountingBrowser, client_id: str
) -> AsyncIterator[tuple[Callable[[], Awaitable[str]], Callable[[], str]]]:
    """Calls its tool, and tells its token; `sdk` is "python MODE" or "typescript VERSION"."""
    language, _, mode = sdk.partition(" ")
    if language == "python":
        storage = Storage(client_id)
        async with python_client(url, mode, storage, browser, []) as client:

            async def call() -> str:
                return text_of(await client.call_tool("write_file", WRITE))

            yield call, lambda: storage.access_token
        return
    async with typescript_client(mode, url, browser, client_id) as process:
        found: dict[str, Any] = {}

        async def call_again() -> str:
            answer = await (process.again() if found else process.result())
            if "error" in answer:
                raise RuntimeError(answer["error"])
            found.update(answer)
            return str(answer["text"])

        yield call_again, lambda: str(found["token"])


async def test_a_session_outlives_its_token_and_ends_when_its_person_logs_out(tmp_path: Path) -> None:
    """Both SDKs in both eras, told by `sub` alone and by the session's `sid`, next to each other."""
    (tmp_path / "provider").mkdir()
    with held_port() as port:
        url = f"http://127.0.0.1:{port}"
        provider = foreign_provider(
            tmp_path / "provider",
            token_seconds=TOKEN_SECONDS,
            servers=[f"{url}/mcp"],
            logout=f"{url}/oidc/backchannel-logout",
            offline=False,
        )
        async with provider as issuer:
            rule = person(match={"groups": "staff"}, capabilities=["*"])
            oidc: dict[str, Json] = {"issuer": issuer, "audience": AUDIENCE, "people": [rule]}
            oidc |= {"client_id": "console", "skew_seconds": SKEW_SECONDS, "renew_grace_seconds": 0}
            async with people_endpoint(tmp_path, port, oidc) as gateway:
                # `console` is told of by sub, and the tokens of `page` name their session.
                await asyncio.gather(
                    *(
                        _live_and_end(gateway, issuer, sdk, client)
                        for sdk, client in (
                            ("python legacy", "page"),
                            ("typescript 1", "console"),
                            ("python 2026-07-28", "console"),
                            ("typescript 2", "page"),
                        )
                    )
                )


async def _live_and_end(gateway: LocalGateway, issuer: str, sdk: str, client_id: str) -> None:
    who = sdk.replace(" ", "-")
    browser = CountingBrowser(who)
    try:
        async with client_of(sdk, f"{gateway.url}/mcp", browser, client_id) as (call, token):
            assert await call() == "wrote b"
            first = claims_of(token())
            assert ("sid" in first) == (client_id == "page")
            # It expires, also as the client counts; the client renews it, and nobody is asked.
            expires_at = time.time() + TOKEN_SECONDS + SKEW_SECONDS
            await until(lambda: time.time() > expires_at)
            assert await call() == "wrote b"
            assert claims_of(token())["jti"] != first["jti"]
            assert len(browser.opened) == 1
            # The session ends at the provider: so does it here.
            await browser.end_session(issuer)
            roster = gateway.gateway.directory.hosts["lab"].space.state.roster
            assert who not in {str(each.name) for each in roster.present()}
            if sdk in ("python legacy", "typescript 1"):
                # Whoever signs in again begins anew. A client that finds its token expired asks for another
                # one first, which the provider refuses: on a slow machine that is what it tells.
                with pytest.raises(Exception, match=r"(?i)session|grant"):
                    await call()
            else:
                assert await call() == "wrote b"
            # On a slow machine a token of some seconds is over before it is used, and its person asked again.
            assert len(browser.opened) >= 2
    finally:
        await browser.close()


@pytest.mark.parametrize("subject_claim", ["oid", "sub"])
async def test_whoever_has_another_sub_at_each_client_is_one_member_by_another_claim_alone(
    tmp_path: Path, subject_claim: str
) -> None:
    """Pairwise subjects: the console, and MCP clients of both eras. Without a claim for all: refused."""
    (tmp_path / "provider").mkdir()
    with held_port() as port:
        url = f"http://127.0.0.1:{port}"
        servers, logout = [f"{url}/mcp"], f"{url}/oidc/backchannel-logout"
        provider = foreign_provider(
            tmp_path / "provider", servers=servers, pairwise=True, logout=logout, offline=False
        )
        async with provider as issuer, AsyncExitStack() as stack:
            rules: Json = [
                person(match={"client_id": "console"}, capabilities=["chat"]),
                person(capabilities=["*"]),
            ]
            oidc: dict[str, Json] = {"issuer": issuer, "audience": AUDIENCE, "people": rules}
            oidc |= {"client_id": "console", "subject_claim": subject_claim}
            gateway = await stack.enter_async_context(people_endpoint(tmp_path, port, oidc))
            console = PersonAtProvider(issuer, resource=AUDIENCE)
            stack.push_async_callback(console.close)
            assert await console.sign_in("ana") == 200
            socket = await enter(gateway, console.access_token)
            member = gateway.gateway.directory.hosts["lab"].space.state.roster.members[Name("ana")]
            browsers = [CountingBrowser("ana") for _ in range(2)]
            for browser in browsers:
                stack.push_async_callback(browser.close)
            clients = zip(("legacy", "2026-07-28"), ("editor", "page"), browsers, strict=True)
            if subject_claim == "sub":
                for mode, client_id, browser in clients:
                    why = await _refusal(f"{url}/mcp", mode, client_id, browser)
                    assert "403" in why or "somebody else" in why
                    assert len(browser.opened) == 1
                assert len(member.sessions) == 1
                return
            for mode, client_id, browser in clients:
                storage = Storage(client_id)
                client = await stack.enter_async_context(
                    python_client(f"{url}/mcp", mode, storage, browser, [])
                )
                assert text_of(await client.call_tool("write_file", WRITE)) == "wrote b"
                assert claims_of(storage.access_token)["sub"] != claims_of(console.access_token)["sub"]
            assert len(member.sessions) == 3
            # What the MCP clients may do, the console may not: rights are those of the token.
            call = {"method": "tools/call", "params": {"name": "write_file", "arguments": WRITE}}
            assert await socket.refused("mcp/request", call, to=["files"]) == "capability_violation"
            # The console's session ends at the provider, which tells its `sub` at the console.
            await console.sign_out()
            assert await socket.closed() == (4003, "signed out")
            await until(lambda: not member.sessions)


async def _refusal(url: str, mode: str, client_id: str, browser: CountingBrowser) -> str:
    """Why somebody who has signed in does not come in."""
    try:
        async with python_client(url, mode, Storage(client_id), browser, []) as client:
            await client.list_tools()
    except Exception as fault:  # noqa: BLE001  # the SDK has none of its own
        return "".join(traceback.format_exception(fault))
    raise AssertionError("they came in")


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_token_that_the_provider_takes_back_ends_its_session_and_no_other(
    tmp_path: Path, mode: str
) -> None:
    """RFC 7009 and 7662, as Canaille has them: a program revokes its token, and the gateway asks."""
    with held_port() as port:
        async with canaille_provider() as issuer:
            asked: Json = {"client_id": GATEWAY, "client_secret_env": "ASK", "interval_seconds": 0.05}
            # Of its tokens those of `program` are for the gateway's MCP server, and not for the gateway.
            oidc = oidc_settings(issuer) | {"audience": "console", "introspection": asked}
            async with (
                people_endpoint(tmp_path, port, oidc, GATEWAY) as gateway,
                AsyncExitStack() as stack,
            ):
                browsers = [CountingBrowser("ana") for _ in range(2)]
                for each in browsers:
                    stack.push_async_callback(each.close)
                program, page = Storage("program", "program-secret"), Storage("studio")
                url = f"{gateway.url}/mcp"
                clients = [
                    await stack.enter_async_context(python_client(url, mode, storage, browser, []))
                    for storage, browser in zip((program, page), browsers, strict=True)
                ]
                for client in clients:
                    assert text_of(await client.call_tool("write_file", WRITE)) == "wrote b"
                roster = gateway.gateway.directory.hosts["lab"].space.state.roster
                assert len(roster.members[Name("ana")].sessions) == 2
                revoked = PersonAtCanaille(issuer, "program", "program-secret")
                revoked.tokens = {"access_token": program.access_token}
                await revoked.revoke()
                await until(lambda: len(roster.members[Name("ana")].sessions) == 1)
                # The same person goes on with the other client.
                assert text_of(await clients[1].call_tool("write_file", WRITE)) == "wrote b"
                assert [len(each.opened) for each in browsers] == [1, 1]
                browsers[0].may_at = int(time.time()) + 1.0
                if mode == "legacy":
                    with pytest.raises(Exception, match=r"(?i)session"):
                        await clients[0].call_tool("write_file", WRITE)
                else:
                    assert text_of(await clients[0].call_tool("write_file", WRITE)) == "wrote b"
                assert [len(each.opened) for each in browsers] == [2, 1]
