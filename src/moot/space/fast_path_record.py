"""The ladder's verdict on all envelopes of one kind from one session, whatever else they contain."""

from __future__ import annotations

from moot.protocol.kinds import KINDS
from moot.space.acts.act_table import EXECUTED
from moot.space.id_window import SeenEnvelope
from moot.space.members.member import Session
from moot.space.state import State


def fast_path_record(state: State, session: Session, kind: str) -> SeenEnvelope | None:
    """What the window keeps of each, if rungs 4 and 6 to 13 let them all pass and everybody receives them.

    None if each has to be looked at. Rungs 1, 2, 3 and 5 (form, rate, sender, id) are checked for every
    envelope. The verdict holds for the current `State.verdict_epoch`.
    """
    row = KINDS.get(kind)
    if (
        row is None
        or row.sender == "gateway"
        or row.changes_verdict
        or kind in EXECUTED
        or session.dialect != "mew"
        or session.options.injected
        or session.closing_at is not None
        or session.member.pause is not None
        or state.audiences.uniform is None
        # Not what ends by itself: that is looked at for every envelope.
        or not session.lasting_rights.allow_all(kind)
    ):
        return None
    return session.seen_record(kind)
