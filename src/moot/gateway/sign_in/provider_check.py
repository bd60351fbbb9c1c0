"""`moot serve --check --try-providers`: whether providers answer, and which rule means the holder of a token.

Asks each provider once, as a gateway would; lets nobody in and writes nothing.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence

from moot.config.oidc_config import OidcConfig, SignInRule
from moot.errors import Unreachable, UsageError
from moot.gateway.access import AccessDenied
from moot.gateway.sign_in.identity_rules import map_identity, why_not
from moot.gateway.sign_in.provider_keys import ProviderKeys
from moot.gateway.sign_in.token_verifier import TokenVerifier, VerifiedToken


async def check_providers(providers: Sequence[OidcConfig], token: str | None) -> AsyncIterator[str]:
    """Lines for a person; raises UsageError if a provider cannot be used or the token lets nobody in."""
    if not providers:
        raise UsageError("gateway.oidc names no provider, so there is nothing to try")
    found = [ProviderKeys(config) for config in providers]
    is_usable = True
    for keys in found:
        yield f"provider {keys.config.issuer}"
        try:
            await keys.fetch_once()
        except (Unreachable, ValueError, RecursionError) as fault:
            is_usable = False
            yield f"  cannot be used: {fault}"
            continue
        for line in _describe(keys):
            yield f"  {line}"
    if token is not None:
        verified = TokenVerifier(found).verify(token, time.time())
        if isinstance(verified, AccessDenied):
            raise UsageError(f"the token lets nobody in: {verified.message}")
        for line in _matched(verified):
            yield line
    if not is_usable:
        raise UsageError("a provider cannot be used: nobody could sign in there")


def _describe(keys: ProviderKeys) -> list[str]:
    config, document = keys.config, keys.discovered
    lines = [f"keys: {', '.join(sorted(str(each) for each in keys.key_ids)) or 'none that can be used'}"]
    if config.client_id is not None:
        for name in ("authorization_endpoint", "token_endpoint", "device_authorization_endpoint"):
            if name not in document:
                lines.append(f"has no {name}")
        methods = document.get("code_challenge_methods_supported")
        if isinstance(methods, list) and "S256" not in methods:
            lines.append("does not offer PKCE with S256: nobody signs in with a browser")
        scopes = document.get("scopes_supported")
        if isinstance(scopes, list):
            lines += [f"does not know the scope {each}" for each in config.scopes if each not in scopes]
    if config.subject_claim == "sub" and document.get("subject_types_supported") == ["pairwise"]:
        lines.append(
            "names each person otherwise to each client: set subject_claim to a claim that is the same "
            "for all, or people can use one client only"
        )
    if config.introspection is not None and "introspection_endpoint" not in document:
        lines.append("has no introspection_endpoint: revoked tokens are not noticed")
    lines += [f"rule {number}: {_rule(rule)}" for number, rule in enumerate(config.people, start=1)]
    return lines


def _rule(rule: SignInRule) -> str:
    wanted = ", ".join(f"{claim}: {_shown(values)}" for claim, values in rule.match.items())
    rights = rule.profile or ("as configured" if rule.capabilities is None else "with its capabilities")
    where = "" if isinstance(rule.administrator, bool) else f" of {', '.join(rule.administrator)}"
    also = f", administrator{where}" if rule.administrator else ""
    return f"{wanted} → {rule.participant} in {', '.join(rule.spaces)} ({rights}{also})"


def _shown(values: Sequence[str | bool]) -> str:
    return " or ".join(str(each) for each in values)


def _matched(verified: VerifiedToken) -> list[str]:
    """Which rule decides on a token, and why those above it do not."""
    config, claims = verified.provider, verified.claims
    mapped = map_identity(claims, config)
    until = len(config.people) if mapped is None else mapped.number - 1
    lines = [
        f"token of {claims[config.subject_claim]} at {config.issuer}: claims {', '.join(sorted(claims))}"
    ]
    for number, rule in enumerate(config.people[:until], start=1):
        lines.append(f"  rule {number} does not match: {why_not(rule, claims, config)}")
    if mapped is None:
        raise UsageError("\n".join([*lines, "no rule lets this account in"]))
    lines.append(f"  rule {mapped.number} matches: {mapped.name} in {', '.join(mapped.rule.spaces)}")
    return lines
