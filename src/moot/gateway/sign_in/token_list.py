"""The tokens of a space as administrators see them: by the beginning of their hashes, never themselves."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from moot.errors import InvalidRequest, ParticipantNotFound
from moot.gateway.hosting.space_host import SpaceHost
from moot.protocol.envelope import rfc3339
from moot.protocol.operation import Json
from moot.space.members.member import SpaceMember, load_capabilities
from moot.space.state import State
from moot.space.tokens.temporary_tokens import MAX_LIFE_SECONDS, TemporaryToken

# Of 64: no two tokens of a space share so many.
_ID_CHARS: Final = 16


def list_tokens(host: SpaceHost, who: str | None) -> list[dict[str, Json]]:
    """What lets members in, or one of them; raises ParticipantNotFound."""
    state = host.space.state
    members = list(state.roster) if who is None else [state.roster.find(who)]
    used = Counter(session.options.token for session in state.roster.sessions.values())
    temporary: defaultdict[str, list[TemporaryToken]] = defaultdict(list)
    for token in state.temporary_tokens.by_hash.values():
        temporary[token.member].append(token)
    return [
        {"id": token_hash[:_ID_CHARS], "participant": member.name, "connections": used[token_hash]} | facts
        for member in members
        if not member.kicked
        for token_hash, facts in _tokens_of(state, member, temporary[member.name])
    ]


def list_absent(host: SpaceHost, who: str | None) -> list[str]:
    """Those who signed in and have no token here now, perhaps one at their provider that is still good."""
    state, now = host.space.state, time.time()
    holders = {token.member for token in state.temporary_tokens.by_hash.values()}
    found: list[str] = []
    for member in state.roster:
        if not member.subject or member.kicked or member.credentials or member.name in holders:
            continue
        newest = max((each.issued_at for each in member.signed_in.values()), default=0.0)
        is_over = newest + MAX_LIFE_SECONDS < now or state.temporary_tokens.is_void([member.subject], newest)
        if not is_over and who in (None, member.name):
            found.append(member.name)
    return found


def _tokens_of(
    state: State, member: SpaceMember, temporary: list[TemporaryToken]
) -> Iterator[tuple[str, dict[str, Json]]]:
    for token_hash in member.credentials:
        limit = state.token_limit(token_hash)
        facts: dict[str, Json] = {"source": _source_of(member)}
        if limit is not None:
            facts["capabilities"] = [each.original for each in limit]
        yield token_hash, facts
    for token in temporary:
        facts = {"source": token.source, "expires": rfc3339(token.expires_at - token.grace_seconds)}
        carried = token.limited_to if token.limited_to is not None else token.rights
        if carried is not None:
            facts["capabilities"] = [each.original for each in load_capabilities(carried)]
        if token.client:
            facts["client"] = token.client
        if token.since:
            facts["since"] = rfc3339(token.since)
        if token.rule:
            facts |= {"issuer": token.issuer, "rule": token.rule}
        yield token.hash, facts


def _source_of(member: SpaceMember) -> str:
    """Where a token that lasts comes from; `lasting`: an administrator made it for somebody who signs in."""
    if member.configured is not None:
        return "configured"
    return "invited" if member.subject is None else "lasting"


def find_token(host: SpaceHost, id: str) -> str:
    """The hash of the token that a list calls so; raises Refused."""
    if len(id) < _ID_CHARS:
        raise InvalidRequest(f"a token is named by {_ID_CHARS} characters, as the list shows them")
    state = host.space.state
    known = [
        *state.temporary_tokens.by_hash,
        *(each for member in state.roster for each in member.credentials),
    ]
    found = [token_hash for token_hash in known if token_hash.startswith(id)]
    if len(found) != 1:
        raise ParticipantNotFound(f"this space has no token {id[:64]}")
    return found[0]
