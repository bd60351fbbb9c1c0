"""Whether a token is still good when what came with it is carried out."""

from __future__ import annotations

import msgspec

from moot.errors import Unauthorized
from moot.space.config import Name
from moot.space.members.member import Options, capability_pairs
from moot.space.state import State


def check_token(state: State, who: str, options: Options, now: float) -> Options:
    """The options with what the token carries now; raises Unauthorized if it has been void since.

    A token is looked up when a request begins; it may be replaced while the rest of that is on its way.
    """
    if options.token is None:
        return options
    member = state.roster.members.get(Name(who))
    temporary = state.temporary_tokens.get(options.token)
    if temporary is not None:
        is_valid = temporary.member == who and temporary.admits(now)
    else:
        is_valid = member is not None and options.token in member.credentials
    if member is None or member.kicked or not is_valid:
        raise Unauthorized("this token is no longer valid")
    limit = state.token_limit(options.token)
    return msgspec.structs.replace(options, limited_to=None if limit is None else capability_pairs(limit))
