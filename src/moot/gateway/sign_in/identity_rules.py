"""From the claims of a token to a member: the first rule that matches decides; no match, no entry."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from moot.config.oidc_config import OidcConfig, SignInRule
from moot.config.oidc_reader import claims_in, fill_claims
from moot.protocol.operation import Json

_EMAIL: Final = "email"
# Whatever stands in a name and may not: `ana@example.org` becomes `ana-example.org`.
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+", re.ASCII)
_MAX_NAME_CHARS: Final = 64
_MARK_CHARS: Final = 8
# One `@`, no blank, nothing quoted: what is no plain address matches no rule about addresses.
_ADDRESS: Final = re.compile(r"[^\s@\"(),:;<>\[\]\\]+@[^\s@\"(),:;<>\[\]\\]+")


class MappedIdentity(NamedTuple):
    """Who somebody is here, by which rule."""

    name: str
    rule: SignInRule
    # Counted from 1, as people count.
    number: int


def map_identity(claims: Mapping[str, Any], config: OidcConfig) -> MappedIdentity | None:
    """The member that the first matching rule makes of these claims; None if nobody may come in."""
    for number, rule in enumerate(config.people, start=1):
        if not _matches(rule, claims, config):
            continue
        name = _name(rule.participant, claims)
        # A name that cannot be made lets nobody in, and no later rule either: what is meant is unknown.
        return None if name is None else MappedIdentity(name, rule, number)
    return None


def describe_rules(config: OidcConfig, space: str) -> list[dict[str, Json]]:
    """What the rules about one space say, with their numbers among all; the first that matches decides."""
    found: list[dict[str, Json]] = []
    for number, rule in enumerate(config.people, start=1):
        administers = rule.administrator is True or (rule.administrator and space in rule.administrator)
        if space not in rule.spaces and not administers:
            continue
        said: dict[str, Json] = {
            "number": number,
            "match": {claim: list(values) for claim, values in rule.match.items()},
            "participant": rule.participant,
            "enters": space in rule.spaces,
            "administrator": bool(administers),
        }
        if rule.capabilities is not None:
            said["capabilities"] = [each.original for each in rule.capabilities]
        if rule.profile is not None:
            said["profile"] = rule.profile
        found.append(said)
    return found


def _matches(rule: SignInRule, claims: Mapping[str, Any], config: OidcConfig) -> bool:
    return why_not(rule, claims, config) is None


def why_not(rule: SignInRule, claims: Mapping[str, Any], config: OidcConfig) -> str | None:
    """Why a rule does not mean whoever holds these claims; None if it does. Says no value of a claim."""
    uses_email = _EMAIL in rule.match or _EMAIL in claims_in(rule.participant)
    if uses_email and not config.trust_email and claims.get("email_verified") is not True:
        # Whoever may type an address into their profile could be anybody.
        return "email is not verified (email_verified)"
    if uses_email and _ADDRESS.fullmatch(str(claims.get(_EMAIL))) is None:
        # `x@evil.org @corp.example` ends like an address of the company, and is none.
        return "email is no plain address"
    for name, wanted in rule.match.items():
        value = claim_of(claims, name)
        if value is None:
            return f"the token has no claim {name}"
        if not _holds(value, wanted):
            return f"{name} has another value"
    return None


def claim_of(claims: Mapping[str, Any], name: str) -> Any:
    """A claim by its name, or by its path, such as `realm_access.roles`."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for step in name.split("."):
        if not isinstance(found, Mapping) or step not in found:
            return None
        found = found[step]
    return found


def _holds(value: Any, wanted: Sequence[str | bool]) -> bool:
    values = value if isinstance(value, list) else [value]
    return any(_is_meant(each, pattern) for each in values for pattern in wanted)


def _is_meant(value: Any, pattern: str | bool) -> bool:
    if isinstance(pattern, bool) or isinstance(value, bool):
        # Not 1 for true, and not "true".
        return value is pattern
    if not isinstance(value, str):
        return False
    if "*" not in pattern:
        return value == pattern
    return _fits(value, *pattern.split("*"))


def _fits(value: str, first: str, *others: str) -> bool:
    """Whether a value is these pieces with anything between them.

    Not `re`: with some `*` it would try for hours what somebody has written into a long claim.
    """
    *middle, last = others
    at, end = len(first), len(value) - len(last)
    if at > end or not value.startswith(first) or not value.endswith(last):
        return False
    for piece in middle:
        at = value.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


def _name(template: str, claims: Mapping[str, Any]) -> str | None:
    values = {name: claim_of(claims, name) for name in claims_in(template)}
    if not all(isinstance(value, str) and value for value in values.values()):
        return None
    meant = fill_claims(template, values)
    written = _NO_NAME.sub("-", meant)
    name = written.strip("-._")
    if name != written or not meant.isascii():
        # Letters are lost, so that `bob` and `ébob.` would be one, and of `李雷` nothing were left.
        mark = hashlib.sha256(meant.encode("utf-8", "surrogatepass")).hexdigest()[:_MARK_CHARS]
        name = f"{name or 'user'}-{mark}"
    return name if len(name) <= _MAX_NAME_CHARS else None
