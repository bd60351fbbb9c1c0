"""What spaces are told of somebody who signs in or out with a provider, and what they know of sign-outs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from moot.errors import MootError, Unauthorized
from moot.gateway.hosting.space_host import SpaceHost
from moot.gateway.other_spaces import AskedSpaces
from moot.gateway.sign_in.identity_rules import MappedIdentity
from moot.gateway.sign_in.token_keys import keys_of, named_client, without_session
from moot.gateway.sign_in.token_verifier import VerifiedToken
from moot.protocol.operation import Json
from moot.space.config import Name
from moot.space.tokens.temporary_tokens import TemporaryToken

# Of what a provider says, in the log and the journal.
_MAX_AUDITED_CHARS: Final = 255


def is_signed_out(host: SpaceHost, verified: VerifiedToken) -> bool:
    """Whether all that this person needs is to sign in again."""
    keys, nobody = tuple(keys_of(verified)), Name("")
    token = TemporaryToken(hash="", member=nobody, expires_at=0, keys=keys, issued_at=verified.issued)
    try:
        host.space.state.temporary_tokens.check_valid(token)
    except Unauthorized:
        return True
    return False


def audited(verified: VerifiedToken) -> dict[str, Json]:
    """Who it is, for the log and the journal."""
    claims = verified.claims
    facts: dict[str, Json] = {"issuer": claims["iss"], "subject": claims[verified.provider.subject_claim]}
    for fact, value in (("client", named_client(claims)), ("account", claims.get("preferred_username"))):
        if isinstance(value, str):
            facts[fact] = value[:_MAX_AUDITED_CHARS]
    return facts


def details_of(verified: VerifiedToken, mapped: MappedIdentity) -> dict[str, Json]:
    details = audited(verified) | {"rule": mapped.number}
    details.pop("account", None)
    if mapped.rule.profile is not None:
        details["profile"] = mapped.rule.profile
    return details


class LogoutQuestion(msgspec.Struct, frozen=True):
    """Whom a provider means that says that a session has ended."""

    issuer: str
    # For which programs that is.
    clients: tuple[str, ...]
    # The keys of its `sub` and `sid`; empty where there is none.
    subject: str
    session: str


class LogoutFacts(msgspec.Struct, frozen=True):
    """What some spaces know of them."""

    # Of whom `sub` names to one of their clients, though not to others.
    accounts: frozenset[str]
    # Whether somebody has signed in there with one of these programs.
    is_client: bool
    knows_session: bool
    # Whether a session that nobody is known by may be that of somebody whose token does not name it.
    has_tokens_without_session: bool


async def answer_logout(facts: Json, asked: AskedSpaces) -> Json:
    found: Json = msgspec.to_builtins(find_meant(asked.hosts, msgspec.convert(facts, LogoutQuestion)))
    return found


def find_meant(hosts: Iterable[SpaceHost], asked: LogoutQuestion) -> LogoutFacts:
    """Whom a logout means, by what these spaces know of tokens and members."""
    states = [host.space.state for host in hosts]
    tokens = [token for state in states for token in state.temporary_tokens.by_hash.values()]
    members = [member for state in states for member in state.roster]
    accounts = {token.keys[0] for token in tokens if asked.subject in token.keys}
    if asked.subject:
        accounts |= {
            member.subject
            for member in members
            if member.subject and any(each.known_as == asked.subject for each in member.signed_in.values())
        }
    return LogoutFacts(
        frozenset(accounts),
        is_client=any(token.client in asked.clients for token in tokens)
        or any(not member.signed_in.keys().isdisjoint(asked.clients) for member in members),
        knows_session=any(asked.session in token.keys for token in tokens),
        has_tokens_without_session=any(
            token.source == "sign_in"
            and token.issuer == asked.issuer
            and without_session(token.keys[0]) in token.keys
            for token in tokens
        ),
    )


class SignOut(msgspec.Struct, frozen=True):
    """What ends: all that was signed in under these keys until then."""

    keys: tuple[str, ...]
    by: str
    issued_before: float
    keep_seconds: float


async def answer_sign_out(facts: Json, asked: AskedSpaces) -> Json:
    await sign_out_of(asked.hosts, msgspec.convert(facts, SignOut))


async def sign_out_of(hosts: Iterable[SpaceHost], order: SignOut) -> None:
    fault: MootError | None = None
    for host in hosts:
        try:
            await host.rights.sign_out(
                order.keys, order.by, issued_before=order.issued_before, keep_seconds=order.keep_seconds
            )
        except MootError as failed:
            # The other spaces do not wait for this one.
            fault = failed
    if fault is not None:
        raise fault
