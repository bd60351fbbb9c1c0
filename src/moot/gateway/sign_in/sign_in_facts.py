"""What spaces are told of somebody who signs in or out with a provider, and what they know of sign-outs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from moot.errors import MootError, Unauthorized
from moot.gateway.hosting.space_host import SpaceHost
from moot.gateway.other_spaces import AskedSpaces
from moot.gateway.sign_in.identity_rules import MappedIdentity
from moot.gateway.sign_in.token_keys import keys_of, named_client
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
