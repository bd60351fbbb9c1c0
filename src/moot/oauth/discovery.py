"""Finding out where to sign in for an MCP server: RFC 9728 for it, RFC 8414 or OpenID for its provider.

What a server says about itself counts only if it comes from the server's own origin and is about the server;
what a provider says, only if it calls itself what it was called. A provider has to offer PKCE with S256.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from moot.oauth.oauth_settings import SignInFailed
from moot.oauth.provider_http import JsonDocument, ProviderHttp, origin_of, parts_of, shown

_PARAMETER: Final = re.compile(r'([A-Za-z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


@dataclass(frozen=True, slots=True)
class BearerChallenge:
    """What a refusal says: where the server's metadata is, which scopes are needed, and why."""

    metadata_url: str | None = None
    scopes: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderInfo:
    """What a provider offers, as far as it counts here."""

    issuer: str
    authorization_endpoint: str | None
    token_endpoint: str
    registration_endpoint: str | None = None
    reads_client_metadata: bool = False
    # RFC 9207: it names itself in every answer.
    names_itself: bool = False
    scopes: tuple[str, ...] = ()
    has_s256: bool = False
    auth_methods: tuple[str, ...] = ("client_secret_basic",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedResource:
    """An MCP server and the provider that is asked for tokens for it."""

    # Empty: a token that is only exchanged for others.
    resource: str
    provider: ProviderInfo
    # What the server says is good to have.
    scopes: tuple[str, ...] = ()


def read_challenge(header: str) -> BearerChallenge:
    """Read `WWW-Authenticate`; whatever it is, nothing is raised."""
    at = re.search(r"(?:^|[\s,])bearer(?:\s|$)", header, re.IGNORECASE)
    if at is None:
        return BearerChallenge()
    found: dict[str, str] = {}
    for name, quoted, plain in _PARAMETER.findall(header[at.end() :]):
        found.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) or plain)
    return BearerChallenge(
        found.get("resource_metadata"), scopes_of(found.get("scope", "").split()), found.get("error")
    )


def scopes_of(found: Any) -> tuple[str, ...]:
    """The scopes in a list; what is none is left out."""
    texts = found if isinstance(found, list | tuple) else ()
    return tuple(dict.fromkeys(each for each in texts if isinstance(each, str) and _SCOPE.fullmatch(each)))


async def find_resource(
    http: ProviderHttp, server_url: str, challenge: BearerChallenge, *, issuer: str | None
) -> ProtectedResource:
    """Where to get tokens for a server; `issuer` is the only one to take. Raises SignInFailed."""
    document = await _resource_document(http, server_url, challenge)
    resource, listed = server_url, [_origin_text(server_url)]
    scopes: tuple[str, ...] = ()
    if document is not None:
        resource = _checked_resource(document, server_url)
        found = document.get("authorization_servers")
        listed = [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
        scopes = scopes_of(document.get("scopes_supported"))
    if not listed:
        raise SignInFailed("the MCP server names no provider to sign in at")
    if issuer is not None and document is not None and not _lists(listed, issuer):
        raise SignInFailed(
            f"the MCP server does not name {shown(issuer)} as its provider, but {shown(listed[0])}"
        )
    provider = await find_provider(http, issuer or listed[0])
    return ProtectedResource(resource=resource, provider=provider, scopes=scopes)


def _lists(listed: list[str], issuer: str) -> bool:
    return issuer.removesuffix("/") in [each.removesuffix("/") for each in listed]


async def find_provider(http: ProviderHttp, issuer: str) -> ProviderInfo:
    """What a provider says about itself; raises SignInFailed."""
    what = "the provider of the MCP server"
    http.check_url(issuer, what)
    if urlsplit(issuer).query:
        raise SignInFailed(f"{what} is named with a query: {shown(issuer)}")
    for url in _provider_urls(issuer):
        document = await http.get(url, what)
        if document is None:
            continue
        named = document.get("issuer")
        # The MCP SDK for Python writes a slash behind an issuer without path. Both have the same document.
        if not isinstance(named, str) or named.removesuffix("/") != issuer.removesuffix("/"):
            raise SignInFailed(f"{shown(issuer)} calls itself otherwise, so it is not the provider named")
        return _provider(http, named, document)
    raise SignInFailed(f"{shown(issuer)} does not say how to sign in (RFC 8414)")


async def _resource_document(
    http: ProviderHttp, server_url: str, challenge: BearerChallenge
) -> JsonDocument | None:
    what = "the metadata of the MCP server"
    if challenge.metadata_url is not None:
        if origin_of(challenge.metadata_url) != origin_of(server_url):
            raise SignInFailed(
                f"the MCP server sends us to another origin for its metadata: {shown(challenge.metadata_url)}"
            )
        document = await http.get(challenge.metadata_url, what)
        if document is None:
            raise SignInFailed("the MCP server names metadata that are not there")
        return document
    path = urlsplit(server_url).path.rstrip("/")
    well_known = f"{_origin_text(server_url)}/.well-known/oauth-protected-resource"
    for url in dict.fromkeys([f"{well_known}{path}", well_known]):
        document = await http.get(url, what)
        if document is not None:
            return document
    # A server of MCP 2025-03-26: it is its own provider.
    return None


def _checked_resource(document: JsonDocument, server_url: str) -> str:
    resource = document.get("resource")
    if not isinstance(resource, str) or parts_of(resource) is None:
        raise SignInFailed("the metadata of the MCP server do not say what they are about")
    path, about = urlsplit(server_url).path, urlsplit(resource).path.rstrip("/")
    is_below = path == about or path.startswith(f"{about}/")
    if origin_of(resource) != origin_of(server_url) or not is_below:
        raise SignInFailed(f"the metadata of the MCP server are about another: {shown(resource)}")
    return resource


def _provider(http: ProviderHttp, issuer: str, document: JsonDocument) -> ProviderInfo:
    what = f"{shown(issuer)}:"

    def endpoint(name: str) -> str | None:
        found = document.get(name)
        return http.check_url(found, f"{what} {name}") if isinstance(found, str) else None

    token_endpoint = endpoint("token_endpoint")
    if token_endpoint is None:
        raise SignInFailed(f"{what} there is no token_endpoint")
    methods = document.get("code_challenge_methods_supported")
    return ProviderInfo(
        issuer=issuer,
        authorization_endpoint=endpoint("authorization_endpoint"),
        token_endpoint=token_endpoint,
        registration_endpoint=endpoint("registration_endpoint"),
        reads_client_metadata=document.get("client_id_metadata_document_supported") is True,
        names_itself=document.get("authorization_response_iss_parameter_supported") is True,
        scopes=scopes_of(document.get("scopes_supported")),
        has_s256=isinstance(methods, list) and "S256" in methods,
        auth_methods=scopes_of(document.get("token_endpoint_auth_methods_supported"))
        or ("client_secret_basic",),
    )


def _provider_urls(issuer: str) -> list[str]:
    origin, path = _origin_text(issuer), urlsplit(issuer).path.rstrip("/")
    oauth, openid = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
    urls = [f"{origin}{oauth}{path}", f"{origin}{openid}{path}", f"{origin}{path}{openid}"]
    return list(dict.fromkeys(urls))


def _origin_text(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
