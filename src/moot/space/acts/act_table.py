"""What prepares each kind that the gateway does something about; the others are only relayed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moot.space.acts import (
    PlainAct,
    Prepare,
    control,
    delegations,
    grants,
    invites,
    pages,
    proposals,
    requests,
    streams,
)

ACTS: Final[Mapping[str, Prepare]] = {
    "mcp/request": requests.prepare_request,
    "mcp/withdraw": proposals.prepare_withdraw,
    "mcp/reject": proposals.prepare_reject,
    "moot/approve": proposals.prepare_approve,
    "moot/settle": proposals.prepare_settle,
    "moot/assign": proposals.prepare_assign,
    "moot/delegate": delegations.prepare_delegate,
    "moot/end-delegation": delegations.prepare_end,
    "moot/list-proposals": pages.prepare_proposals,
    "capability/grant": grants.prepare_grant,
    "capability/revoke": grants.prepare_revoke,
    "space/invite": invites.prepare_invite,
    "space/kick": invites.prepare_kick,
    "participant/pause": control.prepare_pause,
    "participant/resume": control.prepare_resume,
    "participant/request-status": control.prepare_question,
    "participant/forget": control.prepare_question,
    "participant/compact": control.prepare_question,
    "participant/clear": control.prepare_question,
    "participant/restart": control.prepare_question,
    "participant/shutdown": control.prepare_shutdown,
    "moot/roster": pages.prepare_roster,
    "moot/list-owners": pages.prepare_owners,
    "stream/request": streams.prepare_request,
    "stream/close": streams.prepare_close,
    "stream/grant-write": streams.prepare_grant_write,
    "stream/revoke-write": streams.prepare_revoke_write,
    "stream/transfer-ownership": streams.prepare_transfer,
}
_ANSWER: Final = PlainAct(requests.note_answers)
PLAIN_ACTS: Final[Mapping[str, PlainAct]] = {
    # Where nothing was prepared.
    "mcp/request": PlainAct(requests.expect_answers, requests.check_may_wait),
    "mcp/response": _ANSWER,
    "capability/grant-ack": _ANSWER,
    "chat/acknowledge": _ANSWER,
    "participant/status": _ANSWER,
    "participant/compact-done": _ANSWER,
    "mcp/proposal": PlainAct(proposals.record_proposal, proposals.check_room),
}
EXECUTED: Final = frozenset({*ACTS, *PLAIN_ACTS})
