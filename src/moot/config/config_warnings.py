"""What can be run but is perhaps not what was meant."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from moot.config.configuration import SpaceSettings
from moot.config.gateway_config import LOOPBACK, GatewayConfig, bracketed, is_loopback, is_wildcard
from moot.protocol.patterns import Capability
from moot.protocol.patterns.capability_typos import empty_negations, misspelt_words, tool_like_kinds
from moot.protocol.patterns.globs import is_wild
from moot.space.config import SpaceConfig

_READABLE_BY_OTHERS = stat.S_IRGRP | stat.S_IROTH


def warnings_of(
    path: Path, gateway: GatewayConfig, spaces: Mapping[str, SpaceSettings], literals: Sequence[str]
) -> Iterator[str]:
    """Everything worth a second look; `literals` are the paths of tokens that stand in the file itself."""
    if literals and path.stat().st_mode & _READABLE_BY_OTHERS:
        yield f"{literals[0]}: a token stands in a file that others may read; run chmod 600 on {path.name}"
    if not is_loopback(gateway.host):
        yield from _about_exposure(gateway, spaces)
    has_addresses = gateway.cluster is not None and bool(gateway.cluster.addresses)
    if not is_loopback(gateway.host) and gateway.allowed_hosts is None and not has_addresses:
        yield (
            f"gateway.host: listens on {gateway.host}, but only requests that name this machine itself"
            " are answered; list other names under allowed_hosts"
            + (", or where each gateway is reached under cluster.addresses" if gateway.cluster else "")
        )
    elif (
        is_wildcard(gateway.host)
        and gateway.public_url is None
        and not has_addresses
        and any(space.config.connection_url is None for space in spaces.values())
    ):
        yield (
            "gateway.public_url: is not set, so people whom members invite are told to connect to 127.0.0.1,"
            " which leads them nowhere from other machines"
        )
    yield from _about_own_machine(gateway)
    if gateway.allow_query_token:
        yield "gateway.allow_query_token: tokens in URLs end up in logs and histories"
    if any(provider.mcp for provider in gateway.oidc) and gateway.max_connections_per_address:
        yield (
            f"gateway.max_connections_per_address: so many ({gateway.max_connections_per_address}) people at"
            " most can use an MCP server of gateway.oidc.mcp at the same time; 0 lifts it"
        )
    for name, space in spaces.items():
        yield from _about_space(name, space)
    everyone = {hash for space in spaces.values() for hash in space.tokens}
    for admin, hash in gateway.admin_tokens.items():
        if hash in everyone:
            yield f"gateway.admin_tokens.{admin}: a participant has the same token and so the same powers"


def _about_exposure(gateway: GatewayConfig, spaces: Mapping[str, SpaceSettings]) -> Iterator[str]:
    """What somebody on the network gets of a gateway that does not listen on this machine alone."""
    admins = ", ".join(gateway.admin_tokens)
    among = f", those of administrators ({admins}) too," if admins and gateway.http.admin else ""
    if gateway.tls is None:
        yield (
            f"WARNING: gateway.host: {gateway.host} is reached from other machines, and there is no TLS:"
            f" tokens{among} and all messages can be read and changed on the way. Set gateway.tls, put a"
            " proxy with TLS in front, or listen on 127.0.0.1"
        )
    for name, space in spaces.items():
        if space.config.access == "public":
            yield f"WARNING: space {name}: whoever reaches {gateway.host} comes in without a token"


def _about_own_machine(gateway: GatewayConfig) -> Iterator[str]:
    """Whether this machine's own programs reach the gateway; with TLS they have a port of their own."""
    host = "127.0.0.1" if is_wildcard(gateway.host) else bracketed(gateway.host).lower()
    if gateway.tls is None and f"{host}:{gateway.port}" not in gateway.hosts(gateway.port):
        yield (
            "gateway.allowed_hosts: does not name this machine, so commands in the folder and members that"
            f" `moot up` starts cannot reach the gateway; add {'localhost' if host in LOOPBACK else host}"
        )


def _about_space(name: str, space: SpaceSettings) -> Iterator[str]:
    config = space.config
    if space.config.access == "public":
        yield f"space {name}: public: whoever reaches the gateway comes in as a guest"
    if not config.participants:
        yield f"space {name}: has no participants"
    if config.delegation == "unrestricted":
        yield f"space {name}: members may hand on rights that they do not hold (delegation: unrestricted)"
    yield from _about_quorum(name, config)
    yield from _about_budgets(name, config)
    yield from _about_effects(name, config)
    for index, step in enumerate(config.reminders):
        for who in step.tell:
            if not is_wild(who) and who not in config.participants:
                yield f"space {name}: reminders[{index}].tell: there is no participant {who}"
    for participant, settings in config.participants.items():
        if not settings.capabilities and participant not in space.output_logs:
            yield f"space {name}: {participant} has no capability and can only listen"
        yield from _doubtful(f"space {name}: {participant}", settings.capabilities, config)
    yield from _doubtful(f"space {name}: guests", config.anonymous or (), config)
    yield from _misspelt(f"space {name}: invite_baseline", config.invite_baseline)
    limited = {grant.participant: grant.capabilities for grant in space.tokens.values() if grant.capabilities}
    for participant, rights in limited.items():
        yield from _doubtful(f"space {name}: a token of {participant}", rights, config)


def _about_quorum(name: str, config: SpaceConfig) -> Iterator[str]:
    """D-103: whom a quorum binds, which until 0.2 were those only who had to propose."""
    for index, rule in enumerate(config.quorum):
        count = "1 approval is" if rule.approvals_needed == 1 else f"{rule.approvals_needed} approvals are"
        call = {key: value for key, value in rule.pattern.original.items() if key != "kind"}
        bound = f"nobody but {', '.join(rule.exempt)} makes" if rule.exempt else "nobody makes"
        yield (
            f"space {name}: quorum[{index}]: {count} needed for {json.dumps(call) if call else 'every call'};"
            f" since 0.3 {bound} it without them, whatever their capabilities"
        )
        for unknown in [each for each in rule.exempt if each not in config.participants]:
            yield f"space {name}: quorum[{index}].exempt: there is no participant {unknown}"
    for index, rule in enumerate(config.passkeys.required):
        for unknown in [each for each in rule.exempt if each not in config.participants]:
            yield f"space {name}: passkeys.required[{index}].exempt: there is no participant {unknown}"


def _about_budgets(name: str, config: SpaceConfig) -> Iterator[str]:
    for budget in config.budgets:
        for who in budget.who:
            if not is_wild(who) and who not in config.participants:
                yield (
                    f"space {name}: budgets.{budget.name}.who: there is no participant {who}: the budget"
                    " binds whoever is invited under that name, and nobody else"
                )


def _about_effects(name: str, config: SpaceConfig) -> Iterator[str]:
    for effect in config.effects:
        hosts = effect.calls.original.get("to", ())
        for host in (hosts,) if isinstance(hosts, str) else hosts:
            if not is_wild(host) and host not in config.participants:
                yield (
                    f"space {name}: effects.{effect.name}.to: there is no participant {host}: calls of its "
                    "tools under another name are not held to this"
                )
    if any(each.undo for each in config.passkeys.required) and not any(each.undo for each in config.effects):
        yield f"space {name}: passkeys.required: no entry of effects says undo, so no passkey is asked for"


def _doubtful(who: str, rights: Sequence[Capability], config: SpaceConfig) -> Iterator[str]:
    yield from _inert(who, rights, config)
    yield from _empty_negations(who, rights)
    yield from _misspelt(who, [right for right in rights if not right.inert])


def _empty_negations(who: str, rights: Sequence[Capability]) -> Iterator[str]:
    for right in rights:
        for text in empty_negations(right):
            yield (
                f"{who}: {text!r} matches nothing: behind ! stands one glob of what is excluded,"
                ' as in "!system/*"'
            )


def _misspelt(who: str, rights: Sequence[Capability]) -> Iterator[str]:
    for right in rights:
        for word, meant in misspelt_words(right):
            yield (
                f"{who}: no known kind or method is called {word!r}; did you mean {meant}?"
                " (A kind of your own is fine.)"
            )
        for word in tool_like_kinds(right):
            yield (
                f"{who}: no known kind is called {word!r}, so this allows no call. To allow the tool: {{kind:"
                f" mcp/request, payload: {{method: tools/call, params: {{name: {word}}}}}}}"
            )


def _inert(who: str, rights: Sequence[Capability], config: SpaceConfig) -> Iterator[str]:
    for right in rights:
        # D-10: under reference_compat this one kind is a member's again.
        allowed = config.reference_compat and right.matches("stream/open", {})
        if right.inert and not allowed:
            yield f"{who}: the capability {right.original!r} does nothing: only the gateway says that"
