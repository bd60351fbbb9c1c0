"""What the ladder would say of all envelopes of one kind from one session, whatever else stands in them."""

from __future__ import annotations

from moot.protocol.kinds import KINDS
from moot.space.id_window import SeenEnvelope
from moot.space.ladder import EXECUTED
from moot.space.roster import Session
from moot.space.state import State


def fast_path_record(state: State, session: Session, kind: str) -> SeenEnvelope | None:
    """What the window keeps of each, if rungs 4 and 6 to 13 let them all pass and everybody hears them.

    None if one has to look. Rungs 1, 2, 3 and 5 (form, rate, sender, id) are for each envelope by itself. It
    holds until an input changes members, rights, pauses or the configuration.
    """
    row = KINDS.get(kind)
    if (
        row is None
        or row.sender == "gateway"
        or kind in EXECUTED
        or session.dialect != "mew"
        or session.options.injected
        or session.closing_at is not None
        or session.member.pause is not None
        or state.alike is None
        or not session.rights.allow_all(kind)
    ):
        return None
    return session.member.said(kind)
