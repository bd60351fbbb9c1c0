"""What servers and providers say about themselves is believed only as far as it can be."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from moot.bridges.server.sign_in_requests import SignInRequests
from moot.config.configuration import McpSignInConfig
from moot.errors import McpError
from moot.net.http_listener import bind_socket, serve_http
from moot.oauth.credential_store import CredentialStore
from moot.oauth.discovery import BearerChallenge, find_provider, find_resource, read_challenge
from moot.oauth.oauth_settings import SignInFailed
from moot.oauth.provider_http import MAX_RESPONSE_BYTES, ProviderHttp
from moot.oauth.server_credential import ServerCredential
from tests.oauth.oauth_provider import oauth_provider

BACK = "http://127.0.0.1:7/callback"


@dataclass
class Site:
    """A site that serves documents, and counts who asks."""

    origin: str
    documents: dict[str, Any] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)

    async def answer(self, request: Request) -> Response:
        self.paths.append(request.url.path)
        found = self.documents.get(request.url.path)
        if isinstance(found, str):
            return RedirectResponse(found)
        return Response(status_code=404) if found is None else JSONResponse(found)

    @property
    def server_url(self) -> str:
        return f"{self.origin}/mcp"

    @property
    def http(self) -> ProviderHttp:
        return ProviderHttp(self.server_url, allow_private=False)


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    listening = bind_socket("127.0.0.1", 0)
    made = Site(f"http://127.0.0.1:{listening.getsockname()[1]}")
    routes = [Route("/{path:path}", made.answer, methods=["GET", "POST"])]
    async with serve_http(Starlette(routes=routes), listening):
        yield made


@pytest.mark.parametrize(
    ("header", "read"),
    [
        ("", BearerChallenge()),
        ("Basic realm=x", BearerChallenge()),
        ("Bearer", BearerChallenge()),
        ('Bearer resource_metadata="https://a/b", scope="x y"', BearerChallenge("https://a/b", ("x", "y"))),
        (
            'bearer error=insufficient_scope,scope="a \\"b"',
            BearerChallenge(None, ("a",), "insufficient_scope"),
        ),
        ('Basic realm="q", Bearer scope=z', BearerChallenge(None, ("z",))),
        ('Bearer scope="a\x00b c"', BearerChallenge(None, ("c",))),
    ],
)
def test_what_a_challenge_says(header: str, read: BearerChallenge) -> None:
    assert read_challenge(header) == read


async def test_metadata_of_another_origin_are_refused_unread() -> None:
    async with site() as server, site() as other:
        challenge = BearerChallenge(f"{other.origin}/.well-known/oauth-protected-resource/mcp")
        with pytest.raises(SignInFailed, match="another origin"):
            await find_resource(server.http, server.server_url, challenge, issuer=None)
        assert other.paths == []


@pytest.mark.parametrize(
    "resource", ["https://bank.example/mcp", "{origin}/other", "{origin}/mcp/deeper", "mcp", None]
)
async def test_metadata_about_another_server_are_refused(resource: str | None) -> None:
    async with site() as server:
        about = None if resource is None else resource.replace("{origin}", server.origin)
        document = {"resource": about, "authorization_servers": ["https://as.example"]}
        server.documents["/.well-known/oauth-protected-resource/mcp"] = document
        with pytest.raises(SignInFailed, match="about"):
            await find_resource(server.http, server.server_url, BearerChallenge(), issuer=None)


async def test_metadata_are_found_at_both_places_and_a_pinned_provider_has_to_be_named() -> None:
    async with site() as server, oauth_provider() as provider:
        document = {"resource": server.origin, "authorization_servers": [f"{provider.issuer}/"]}
        server.documents["/.well-known/oauth-protected-resource"] = document
        found = await find_resource(server.http, server.server_url, BearerChallenge(), issuer=provider.issuer)
        assert found.resource == server.origin
        # The slash that the SDK for Python adds is not part of the name.
        assert found.provider.issuer == provider.issuer
        with pytest.raises(SignInFailed, match=r"does not name https://other\.example"):
            await find_resource(
                server.http, server.server_url, BearerChallenge(), issuer="https://other.example"
            )


async def test_a_server_without_metadata_is_its_own_provider() -> None:
    """MCP 2025-03-26."""
    async with site() as server:
        where = {"issuer": server.origin, "token_endpoint": f"{server.origin}/token"}
        server.documents["/.well-known/oauth-authorization-server"] = where
        found = await find_resource(server.http, server.server_url, BearerChallenge(), issuer=None)
        assert (found.provider.issuer, found.resource) == (server.origin, server.server_url)


async def test_a_provider_with_a_path_is_looked_for_at_three_places() -> None:
    async with site() as place:
        with pytest.raises(SignInFailed, match="does not say how to sign in"):
            await find_provider(place.http, f"{place.origin}/tenant")
        assert place.paths == [
            "/.well-known/oauth-authorization-server/tenant",
            "/.well-known/openid-configuration/tenant",
            "/tenant/.well-known/openid-configuration",
        ]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"issuer": "https://evil.example"}, "calls itself otherwise"),
        ({"issuer": None}, "calls itself otherwise"),
        ({"token_endpoint": None}, "no token_endpoint"),
        ({"token_endpoint": "http://as.example/token"}, "https:// address"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "https:// address"),
        ({"authorization_endpoint": "file:///etc/passwd"}, "https:// address"),
        ({"registration_endpoint": "http://10.0.0.1/register"}, "https:// address"),
    ],
)
async def test_a_provider_that_says_wrong_things_is_refused(changed: dict[str, Any], says: str) -> None:
    async with oauth_provider(metadata=changed) as provider:
        http = ProviderHttp("http://127.0.0.1:1/mcp", allow_private=False)
        with pytest.raises(SignInFailed, match=says):
            await find_provider(http, provider.issuer)


@pytest.mark.parametrize(
    "issuer",
    [
        "https://127.0.0.1:1",
        "https://169.254.169.254",
        "https://[::1]:1",
        "https://10.1.2.3",
        "https://localhost:1",
    ],
)
async def test_a_public_server_sends_us_to_no_private_address(issuer: str) -> None:
    """SSRF: not even a connection is tried."""
    http = ProviderHttp("https://mcp.example/mcp", allow_private=False)
    with pytest.raises(SignInFailed, match="not public"):
        await find_provider(http, issuer)


async def test_a_server_on_this_machine_vouches_for_no_other_in_our_network() -> None:
    http = ProviderHttp("http://127.0.0.1:1/mcp", allow_private=False)
    with pytest.raises(SignInFailed, match="not public"):
        await find_provider(http, "https://10.1.2.3")


async def test_a_provider_that_repeats_what_it_was_given_is_not_quoted() -> None:
    async with begun() as (credential, provider, pending):
        answer = provider.sign_in(pending.link, "ana", code="guessed")
        with pytest.raises(SignInFailed, match="gives no token: invalid_grant") as refused:
            await credential.finish(pending, answer)
        assert "guessed" not in str(refused.value)
        assert pending.verifier not in str(refused.value)


async def test_a_public_server_has_no_provider_without_tls() -> None:
    http = ProviderHttp("https://mcp.example/mcp", allow_private=True)
    with pytest.raises(SignInFailed, match="https:// address"):
        await find_provider(http, "http://127.0.0.1:1")


async def test_redirects_are_not_followed_and_answers_are_bounded() -> None:
    async with site() as server, site() as other:
        path = "/.well-known/oauth-authorization-server"
        server.documents[path] = f"{other.origin}{path}"
        with pytest.raises(SignInFailed, match="does not say how"):
            await find_provider(server.http, server.origin)
        assert other.paths == []
        server.documents[path] = {"issuer": server.origin, "x": "y" * MAX_RESPONSE_BYTES}
        with pytest.raises(SignInFailed, match="larger than"):
            await find_provider(server.http, server.origin)


def credential_at(url: str, **settings: Any) -> ServerCredential:
    return ServerCredential(url, McpSignInConfig(**settings), CredentialStore(None), server="test")


@asynccontextmanager
async def begun(**provider_settings: Any) -> AsyncIterator[tuple[ServerCredential, Any, Any]]:
    async with site() as server, oauth_provider(**provider_settings) as provider:
        document = {"resource": server.server_url, "authorization_servers": [provider.issuer]}
        server.documents["/.well-known/oauth-protected-resource/mcp"] = document
        credential = credential_at(server.server_url)
        yield credential, provider, await credential.begin(BACK)


async def test_a_provider_without_s256_gets_no_sign_in() -> None:
    with pytest.raises(SignInFailed, match="PKCE"):
        async with begun(metadata={"code_challenge_methods_supported": None}):
            pass


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda answer: answer | {"state": "other"}, "does not belong"),
        (lambda answer: answer | {"state": "\u00e4"}, "does not belong"),
        (lambda answer: answer | {"iss": "https://evil.example"}, "another provider"),
        (lambda answer: answer | {"iss": "https://evil.example", "error": "x"}, "another provider"),
        (lambda answer: {k: v for k, v in answer.items() if k != "iss"}, "another provider"),
        (lambda answer: answer | {"error": "access_denied"}, "nobody was signed in: access_denied"),
        (lambda answer: answer | {"code": "guessed"}, "invalid_grant"),
        (lambda answer: {k: v for k, v in answer.items() if k != "code"}, "no code"),
    ],
)
async def test_a_wrong_answer_signs_nobody_in(
    change: Callable[[dict[str, str]], dict[str, str]], says: str
) -> None:
    async with begun() as (credential, provider, pending):
        with pytest.raises(SignInFailed, match=says):
            await credential.finish(pending, change(provider.sign_in(pending.link, "ana")))
        assert not credential.is_there


async def test_a_code_is_worth_nothing_the_second_time() -> None:
    async with begun() as (credential, provider, pending):
        answer = provider.sign_in(pending.link, "ana")
        await credential.finish(pending, answer)
        with pytest.raises(SignInFailed, match="invalid_grant"):
            await credential.finish(pending, answer)


async def test_the_link_holds_no_verifier_and_names_the_server_and_all_scopes() -> None:
    async with begun() as (credential, provider, pending):
        assert pending.verifier not in pending.link
        provider.sign_in(pending.link, "ana")
        (asked, _) = provider.codes.popitem()[1]
        assert asked["resource"] == pending.target.resource
        assert asked["scope"] == "offline_access"
        assert asked["prompt"] == "consent"
        credential.on_forbidden('Bearer error="insufficient_scope", scope="admin tools"')
        assert credential.problem == "some calls need a wider sign-in (admin tools)"
        wider = await credential.begin(BACK)
        assert wider.scopes == ("admin", "tools", "offline_access")


async def test_a_token_is_sent_over_tls_or_on_this_machine_only() -> None:
    credential = credential_at("http://mcp.example/mcp")
    with pytest.raises(SignInFailed, match="https:// address"):
        await credential.begin(BACK)


@pytest.mark.parametrize(
    "address",
    [
        "https://evil.example/callback",
        "http://10.0.0.1:7/callback",
        "http://127.0.0.1:7/other",
        "http://127.0.0.1/callback",
        "http://127.0.0.1:7/callback?x=y",
        "http://a@127.0.0.1:7/callback",
        "http://127.0.0.1:7/callback#x",
        7,
    ],
)
async def test_codes_go_to_the_machine_of_whoever_signs_in(address: Any) -> None:
    requests = SignInRequests(lambda _: credential_at("http://127.0.0.1:1/mcp"), "")
    with pytest.raises(McpError, match="redirect_uri has to be"):
        await requests.handle("moot/sign-in-server", {"redirect_uri": address}, "ana")


async def test_sign_ins_that_have_begun_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """`max_pending_sign_ins`."""
    monkeypatch.setattr("moot.bridges.server.sign_in_requests.MAX_PENDING_SIGN_INS", 2)
    requests = SignInRequests(lambda _: credential_at("http://127.0.0.1:1/mcp"), "")
    for name in ("ana", "ben", "ana"):
        await requests.handle("moot/sign-in-server", {}, name)
    with pytest.raises(McpError, match="too many sign-ins"):
        await requests.handle("moot/sign-in-server", {}, "carl")


async def test_a_sign_in_that_takes_too_long_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """`sign_in_seconds`."""
    monkeypatch.setattr("moot.oauth.oauth_settings.SIGN_IN_SECONDS", 0)
    requests = SignInRequests(lambda _: credential_at("http://127.0.0.1:1/mcp"), "")
    begun = await requests.handle("moot/sign-in-server", {}, "ana")
    with pytest.raises(McpError, match="took too long"):
        await requests.handle("moot/sign-in-server", {"id": begun["id"], "sealed": "x"}, "ana")


async def test_scopes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """`max_scopes`."""
    async with site() as server, oauth_provider() as provider:
        many = [f"s{number}" for number in range(100)]
        document = {"resource": server.server_url, "authorization_servers": [provider.issuer]}
        document["scopes_supported"] = many
        server.documents["/.well-known/oauth-protected-resource/mcp"] = document
        monkeypatch.setattr("moot.oauth.server_credential.MAX_SCOPES", 5)
        pending = await credential_at(server.server_url).begin(BACK)
        assert len(pending.scopes) == 5
