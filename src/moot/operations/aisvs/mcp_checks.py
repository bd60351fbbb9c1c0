"""C10: what a configuration says about MCP. One function for each row that it can meet or miss."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from moot.config.gateway_config import is_loopback
from moot.operations.aisvs.agent_checks import boxes
from moot.operations.aisvs.deployment import Deployment, Verdict, judge, none

# Programs that fetch what they run, and how an argument of theirs is bound to one content.
_FETCHERS = re.compile(r"(^|/)(npx|bunx|uvx|pipx|pnpm|deno|docker|podman)$")
_BOUND = re.compile(r"@sha256:[0-9a-f]{64}$")
_LARGEST_ENVELOPE = 16 << 20

sandboxes = boxes


def sources(of: Deployment) -> Verdict:
    def fetched() -> Iterator[str]:
        for name, server in of.local_servers():
            if _FETCHERS.search(server.command or "") and not any(
                _BOUND.search(word) for word in server.args
            ):
                yield f"{name} is fetched by {server.command} at its start, whatever is there then"

    if not list(of.local_servers()):
        return none("no MCP server is started here")
    return judge(
        fetched(),
        change="install it with a lock file and name the program, or an image by its sha256",
        otherwise="every server that is started is a program that is there already, or an image by its hash",
    )


def allow_list(of: Deployment) -> Verdict:
    def open_doors() -> Iterator[str]:
        if of.configuration.gateway.auto_create_spaces:
            yield "spaces are made for whoever names one (auto_create_spaces)"
        for name, space in of.spaces.items():
            if space.config.access == "public":
                yield f"anybody may join {name}"

    return judge(
        open_doors(), change="`access: private`", otherwise="only members of the file may offer tools"
    )


def token_per_request(of: Deployment) -> Verdict:
    def without() -> Iterator[str]:
        if of.configuration.gateway.allow_query_token:
            yield "tokens in URLs are accepted (allow_query_token)"
        yield from (
            f"{name} lets in who has no token"
            for name, one in of.spaces.items()
            if one.config.anonymous is not None
        )

    return judge(
        without(), change="remove it", otherwise="every request and every join needs a token in a header"
    )


def token_claims(of: Deployment) -> Verdict:
    providers = of.configuration.gateway.oidc
    if not providers:
        return none("nobody signs in with a provider")
    return judge(
        (
            f"ID tokens of {each.issuer} are taken for access tokens"
            for each in providers
            if each.accept_id_tokens
        ),
        change="remove `accept_id_tokens`",
        otherwise="issuer, audience, type and time of each token are checked, and scopes where named",
    )


def argument_rights(of: Deployment) -> Verdict:
    return judge(
        of.unbound_callers(),
        change="name arguments in the capability: `params: {name: …, arguments: {…}}`; or let agents propose",
        otherwise="whatever agents may call without anybody is bound to arguments",
    )


def encrypted(of: Deployment) -> Verdict:
    def plain() -> Iterator[str]:
        gateway = of.configuration.gateway
        is_public = (gateway.public_url or "").startswith("https://")
        if gateway.tls is None and not is_loopback(gateway.host) and not is_public:
            yield f"the gateway listens on {gateway.host} without TLS"
        for name, server in of.servers():
            at = urlsplit(server.url or "")
            if at.scheme == "http" and not is_loopback(at.hostname or ""):
                yield f"{name} is reached without TLS"

    return judge(
        plain(),
        change="`tls:`, or a proxy with TLS before it and `public_url: https://…`; https for servers",
        otherwise="whatever leaves this machine is encrypted, or listens on this machine alone",
    )


def origins(of: Deployment) -> Verdict:
    gateway = of.configuration.gateway
    named = {"allowed_hosts": gateway.allowed_hosts, "allowed_origins": gateway.allowed_origins}
    return judge(
        (f"{setting} has *" for setting, names in named.items() if names and "*" in names),
        change="list the names",
        otherwise="Host and Origin are each compared with a list",
    )


def sizes(of: Deployment) -> Verdict:
    return judge(
        (
            f"an envelope of {name} may have {space.config.limits.envelope.max_bytes >> 20} MiB"
            for name, space in of.spaces.items()
            if space.config.limits.envelope.max_bytes > _LARGEST_ENVELOPE
        ),
        change="`limits: {max_bytes: 1048576}`",
        otherwise="no message is larger than 16 MiB, over whatever transport",
    )


def pins(of: Deployment) -> Verdict:
    if not list(of.servers()):
        return none("no MCP server is bridged")
    return judge(
        (f"{name} may change its tools unseen" for name, server in of.servers() if not server.pin),
        change="remove `pin: false`",
        otherwise="a tool that changes is withheld until somebody accepts it",
    )
