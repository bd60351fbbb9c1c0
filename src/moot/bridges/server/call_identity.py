"""Whose account a call to a bridged server uses: the requester's, or that of whoever sent the request.

A request that fulfils a proposal was wanted by its proposer and sent by its approver; any other was wanted by
whoever sent it. The account of a proposer is used only for exactly what they proposed, and once: the
member's list of proposals has checked that this request repeats the proposal and is the one that fulfils it.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from moot.errors import McpError, MootError
from moot.mcp.eras import JsonObject
from moot.participant import IncomingRequest, JoinedSpace
from moot.protocol.rpc_codes import INVALID_REQUEST

CredentialsOf = Literal["server", "requester", "approver"]
# In `_meta` of a result, and in `data` of an error.
IDENTITY_KEY: Final = "moot/identity"


class CallIdentity(NamedTuple):
    """A participant, by logical name, and why it is them."""

    person: str
    role: Literal["requester", "approver"]

    def shown(self) -> JsonObject:
        return {"person": self.person, "as": self.role}


def owner_of(request: IncomingRequest, space: JoinedSpace) -> str:
    """Who may give the input that a call asks for: whoever wanted it, not whoever approved it and left."""
    seen = [space.proposals.get(id) for id in request.envelope.correlation_id]
    proposal = seen[0] if len(seen) == 1 else None
    return request.sender if proposal is None else proposal.proposer


async def identity_of(
    request: IncomingRequest, space: JoinedSpace, whose: Literal["requester", "approver"]
) -> CallIdentity:
    """Whose account this request uses; raises McpError when that is not certain."""
    wanted_by = request.sender if whose == "approver" else await _requester(request, space)
    member = space.roster.get(space.roster.id_of(wanted_by))
    if member is None:
        raise McpError(
            INVALID_REQUEST, f"{wanted_by} is not in the space, so nothing is called with their account"
        )
    return CallIdentity(member.name, whose)


async def _requester(request: IncomingRequest, space: JoinedSpace) -> str:
    proposers: set[str] = set()
    for id in request.envelope.correlation_id:
        seen = space.proposals.get(id)
        if seen is None:
            await _check_no_proposal(id, space)
        elif seen.request_id == request.envelope.id:
            proposers.add(seen.proposer)
        else:
            raise McpError(INVALID_REQUEST, "this request is not the one that fulfils the proposal")
    if len(proposers) > 1:
        raise McpError(
            INVALID_REQUEST, "several people proposed this, so it is not clear whose account to use"
        )
    return proposers.pop() if proposers else request.sender


async def _check_no_proposal(id: str, space: JoinedSpace) -> None:
    """What a request refers to may be a message of any kind, but no proposal that we do not know."""
    try:
        is_proposal = await space.look_up_proposal(id) is not None
    except MootError:
        is_proposal = True
    if is_proposal:
        text = "this bridge has not seen the proposal that is fulfilled, so it has to be proposed again"
        raise McpError(INVALID_REQUEST, text)


def with_identity(result: JsonObject, identity: CallIdentity | None) -> JsonObject:
    """A result that says whose account was used; what the server says about that does not count."""
    meta = result.get("_meta")
    said = meta if isinstance(meta, dict) else {}
    if identity is None:
        if IDENTITY_KEY not in said:
            return result
        return {**result, "_meta": {name: value for name, value in said.items() if name != IDENTITY_KEY}}
    return {**result, "_meta": {**said, IDENTITY_KEY: identity.shown()}}


def error_with_identity(fault: McpError, identity: CallIdentity) -> McpError:
    """The same error, which says whose account was used, unless it has data of another shape."""
    if fault.data is not None and not isinstance(fault.data, dict):
        return fault
    return McpError(fault.code, fault.message, {**(fault.data or {}), IDENTITY_KEY: identity.shown()})
