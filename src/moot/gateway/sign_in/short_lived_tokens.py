"""Short-lived tokens that the gateway makes: for a program that should act for an hour, and do little.

Whoever has a token can have a shorter-lived one with less: never more than their own carries, and never for
longer than their own lasts, if that ends by itself. An administrator can have one for every member.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from moot.errors import CapabilityViolation, InvalidRequest
from moot.gateway.access import SignedInAccount
from moot.gateway.hosting.mint import FreshMint
from moot.gateway.hosting.space_host import SpaceHost
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability, covered_by, read_capabilities
from moot.space.grants import grant_limits
from moot.space.inputs.sign_in import check_lifetime
from moot.space.members.member import capability_pairs
from moot.space.tokens.temporary_tokens import TemporaryToken

# A time and some capabilities; what a token carries stays in the state of the space, 64 tokens of a member.
MAX_TOKEN_REQUEST_BYTES: Final = 16_384


def read_token_request(body: dict[str, Any]) -> tuple[float, tuple[Capability, ...] | None]:
    """For how many seconds, and with which rights alone; raises Refused."""
    seconds, only = body.get("seconds"), body.get("only")
    if set(body) - {"seconds", "only"} or isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidRequest('the body is {"seconds": 3600} or {"seconds": 3600, "only": ["chat"]}')
    if only is None:
        return float(seconds), None
    if not isinstance(only, list) or not only:
        raise InvalidRequest("only is a list of capabilities")
    are_strings = all(isinstance(each, str) for each in only)
    return float(seconds), read_capabilities(only, place="mcpx" if are_strings else "mew")


async def mint_token(
    host: SpaceHost,
    who: str,
    by: str,
    *,
    seconds: float,
    only: Sequence[Capability] | None,
    max_seconds: float,
    own_token: str | None = None,
    maker: SignedInAccount | None = None,
) -> dict[str, Json]:
    """A token for a member, shown once; `own_token` is the hash of theirs if they ask for it themselves.

    It ends with the sign-in that made it: its own parent's, or that of the administrator who is the `maker`.
    Raises Refused.
    """
    check_lifetime(seconds, max_seconds)
    most = grant_limits.MAX_CAPABILITIES
    if only is not None and len(only) > most:
        # Each is held against all that the maker has, and stays in the state of the space.
        raise InvalidRequest(f"only names {most} capabilities at most")
    state, now = host.space.state, host.journaled.clock()
    member = state.roster.find(who)
    parent = None if own_token is None else state.temporary_tokens.get(own_token)
    if parent is not None and now + seconds > parent.expires_at:
        left = max(0.0, parent.expires_at - now)
        raise InvalidRequest(f"your own token ends in {left:.0f} s: ask for a shorter time, or sign in again")
    limit = None if own_token is None else state.token_limit(own_token)
    given = state.token_rights(own_token)
    if limit is not None:
        held: Sequence[Capability] = limit
    elif given is not None:
        held = (*member.common, *member.rights_of_token(given), *member.granted)
    else:
        held = member.rights.capabilities
    for right in only or ():
        if not covered_by(right, held):
            raise CapabilityViolation(f"{who} cannot hand on {right.original!r}, which is not theirs")
    carried = only if only is not None else limit
    made_by = parent if parent is not None else maker
    token = FreshMint().token()
    await host.rights.add_token(
        TemporaryToken(
            hash=token.hash,
            member=member.name,
            expires_at=now + seconds,
            limited_to=None if carried is None else capability_pairs(carried),
            keys=() if made_by is None else made_by.keys,
            issued_at=0.0 if made_by is None else made_by.issued_at,
            rights=None if parent is None else parent.rights,
            client="" if parent is None else parent.client,
            since=now,
            made_with=own_token or "",
        ),
        by,
    )
    return {"participant_id": member.name, "token": token.secret, "expires_seconds": seconds}
