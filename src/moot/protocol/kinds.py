"""Every kind of MEW v0.4 in one table (MEW 3), and its names in MCPx and m3p.

The gateway's behaviour towards a kind is read from its row: who may send it, what it must correlate
to, which module executes it, whether it is relayed, whether it can change a verdict, and what still passes
when the sender is paused, shut down, or the journal cannot be written. Kinds that are not here pass as
vendor kinds (D-08).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

Sender = Literal["member", "gateway"]
Handler = Literal[
    "relay", "requests", "proposals", "grants", "invites", "roster", "offers", "control", "streams"
]
# As in dialects.md section 2: native in all dialects, extension of a draft, passed under its mechanical name.
Bridging = Literal["native", "extension", "passed"]


class Kind(msgspec.Struct, frozen=True):
    """One row: what the gateway must know of a kind."""

    name: str
    section: str
    # Whether it can change what members may do afterwards: rights, members, pauses, approvals. Required, so
    # that nobody forgets to think of it. Such a kind is seen by nobody before it is on disk (D-41), never
    # takes the fast path, and counts up `State.verdict_epoch`.
    changes_verdict: bool
    # D-85: it only takes something away, so it works while the disk fails, and its record is kept longest.
    shrinks_rights: bool = False
    sender: Sender = "member"
    # What `correlation_id` has to name; empty: nothing is required.
    answers: tuple[str, ...] = ()
    handler: Handler = "relay"
    # False: the gateway consumes it and sends a message of its own (D-23, D-34).
    relayed: bool = True
    passes_pause: bool = False  # D-25
    passes_shutdown: bool = False  # D-26
    # It asks the gateway for what members may see anyway, and needs no capability.
    everyone: bool = False
    # Whoever may send this kind, if only in part, may send it, too.
    implied_by: str = ""
    # D-85: refused while the journal cannot be written. Acts that only shrink rights are never audited first.
    audited: bool = False
    bridging: Bridging = "passed"


_CONTROLS = (
    "participant/pause",
    "participant/request-status",
    "participant/forget",
    "participant/compact",
    "participant/clear",
    "participant/restart",
)

_ROWS: Final = (
    Kind(
        "mcp/request", "MEW 3.1.1", changes_verdict=False, handler="requests", audited=True, bridging="native"
    ),
    Kind(
        "mcp/response",
        "MEW 3.1.2",
        changes_verdict=False,
        answers=("mcp/request",),
        handler="requests",
        bridging="native",
    ),
    Kind(
        "mcp/proposal", "MEW 3.2", changes_verdict=False, handler="proposals", audited=True, bridging="native"
    ),
    Kind(
        "mcp/withdraw",
        "MEW 3.3.1",
        changes_verdict=False,
        shrinks_rights=True,
        answers=("mcp/proposal",),
        handler="proposals",
        passes_pause=True,
        bridging="extension",
    ),
    Kind(
        "mcp/reject",
        "MEW 3.3.2",
        changes_verdict=False,
        shrinks_rights=True,
        answers=("mcp/proposal",),
        handler="proposals",
        passes_pause=True,
        bridging="extension",
    ),
    Kind("chat", "MEW 3.4", changes_verdict=False, bridging="native"),
    Kind(
        "chat/acknowledge",
        "MEW 3.4.1",
        changes_verdict=False,
        answers=("chat", "participant/shutdown"),
        passes_pause=True,
        passes_shutdown=True,
    ),
    Kind("chat/cancel", "MEW 3.4.2", changes_verdict=False, answers=("chat",), passes_pause=True),
    Kind("reasoning/start", "MEW 3.5.2", changes_verdict=False),
    Kind("reasoning/thought", "MEW 3.5.3", changes_verdict=False),
    Kind("reasoning/conclusion", "MEW 3.5.4", changes_verdict=False),
    Kind("reasoning/cancel", "MEW 3.5.5", changes_verdict=False, shrinks_rights=True, passes_pause=True),
    Kind("capability/grant", "MEW 3.6.1", changes_verdict=True, handler="grants", audited=True),
    Kind("capability/revoke", "MEW 3.6.2", changes_verdict=True, shrinks_rights=True, handler="grants"),
    Kind(
        "capability/grant-ack",
        "MEW 3.6.3",
        changes_verdict=False,
        answers=("capability/grant",),
        passes_pause=True,
    ),
    Kind("space/invite", "MEW 3.6.5", changes_verdict=True, handler="invites", relayed=False, audited=True),
    Kind("space/invite-ack", "MEW 3.6.6", changes_verdict=False, sender="gateway", answers=("space/invite",)),
    Kind("space/kick", "MEW 3.6.7", changes_verdict=True, shrinks_rights=True, handler="roster"),
    Kind("participant/pause", "MEW 3.9.1", changes_verdict=True, shrinks_rights=True, handler="control"),
    Kind(
        "participant/resume",
        "MEW 3.9.2",
        changes_verdict=True,
        answers=("participant/pause",),
        handler="control",
        passes_pause=True,
        audited=True,
    ),
    Kind("participant/request-status", "MEW 3.9.3", changes_verdict=False, handler="control"),
    Kind(
        "participant/status",
        "MEW 3.9.4",
        changes_verdict=False,
        answers=_CONTROLS,
        passes_pause=True,
        passes_shutdown=True,
    ),
    Kind("participant/forget", "MEW 3.9.5", changes_verdict=False, handler="control"),
    Kind("participant/compact", "MEW 3.9.6", changes_verdict=False, handler="control"),
    Kind(
        "participant/compact-done",
        "MEW 3.9.7",
        changes_verdict=False,
        answers=("participant/compact",),
        passes_pause=True,
    ),
    Kind("participant/clear", "MEW 3.9.8", changes_verdict=False, handler="control"),
    Kind("participant/restart", "MEW 3.9.9", changes_verdict=False, handler="control"),
    Kind("participant/shutdown", "MEW 3.9.10", changes_verdict=True, shrinks_rights=True, handler="control"),
    Kind("stream/request", "MEW 3.10.1", changes_verdict=False, handler="streams"),
    Kind("stream/open", "MEW 3.10.2", changes_verdict=False, sender="gateway", answers=("stream/request",)),
    Kind(
        "stream/close",
        "MEW 3.10.4",
        changes_verdict=False,
        answers=("stream/open",),
        handler="streams",
        passes_pause=True,
        passes_shutdown=True,
    ),
    Kind("stream/grant-write", "MEW 3.10.5", changes_verdict=False, handler="streams", relayed=False),
    Kind("stream/revoke-write", "MEW 3.10.6", changes_verdict=False, handler="streams", relayed=False),
    Kind("stream/transfer-ownership", "MEW 3.10.7", changes_verdict=False, handler="streams", relayed=False),
    Kind(
        "stream/write-granted",
        "MEW 3.10.5",
        changes_verdict=False,
        sender="gateway",
        answers=("stream/grant-write",),
    ),
    Kind(
        "stream/write-revoked",
        "MEW 3.10.6",
        changes_verdict=False,
        sender="gateway",
        answers=("stream/revoke-write",),
    ),
    Kind(
        "stream/ownership-transferred",
        "MEW 3.10.7",
        changes_verdict=False,
        sender="gateway",
        answers=("stream/transfer-ownership",),
    ),
    Kind("system/presence", "MEW 3.7", changes_verdict=False, sender="gateway", bridging="native"),
    Kind("system/welcome", "MEW 3.8.1", changes_verdict=False, sender="gateway", bridging="native"),
    Kind("system/error", "MEW 3.8.2", changes_verdict=False, sender="gateway", bridging="native"),
    # Ours, for a welcome that does not hold everything: the rest of it, to whoever asks.
    Kind(
        "moot/roster",
        "0068",
        changes_verdict=False,
        handler="roster",
        relayed=False,
        passes_pause=True,
        everyone=True,
    ),
    Kind("moot/roster-page", "0068", changes_verdict=False, sender="gateway", answers=("moot/roster",)),
    # Ours: whose a name is that several members offer.
    Kind(
        "moot/list-owners",
        "0033",
        changes_verdict=False,
        handler="offers",
        relayed=False,
        passes_pause=True,
        everyone=True,
    ),
    Kind("moot/owners", "0033", changes_verdict=False, sender="gateway", answers=("moot/list-owners",)),
    # D-28, D-92: ours, visible and capability-bound like any other.
    Kind(
        "moot/approve",
        "D-28",
        changes_verdict=True,
        answers=("mcp/proposal",),
        handler="proposals",
        audited=True,
    ),
    # D-103: how many approvals a proposal has, from whoever counts them.
    Kind("moot/votes", "D-103", changes_verdict=False, sender="gateway", answers=("mcp/proposal",)),
    Kind(
        "moot/settle",
        "D-99",
        changes_verdict=False,
        answers=("mcp/proposal",),
        handler="proposals",
        audited=True,
    ),
    # Whom a proposal waits for, by somebody who may reject it: it changes nobody's rights.
    Kind(
        "moot/assign",
        "0209",
        changes_verdict=False,
        answers=("mcp/proposal",),
        handler="proposals",
        implied_by="mcp/reject",
    ),
    # Who decides in whose place while somebody is away; both ends can end it.
    Kind(
        "moot/delegate",
        "0210",
        changes_verdict=True,
        handler="grants",
        implied_by="capability/grant",
        audited=True,
    ),
    Kind(
        "moot/end-delegation",
        "0210",
        changes_verdict=True,
        shrinks_rights=True,
        handler="grants",
        passes_pause=True,
        everyone=True,
    ),
    # Where the values of a proposal came from, by whoever found it out; and a person's word for a value.
    Kind("moot/origins", "0180", changes_verdict=False, answers=("mcp/proposal",)),
    Kind("moot/endorse", "0180", changes_verdict=False),
    # What a model thinks of a proposal: it decides nothing.
    Kind("moot/opinion", "0199", changes_verdict=False, answers=("mcp/proposal",)),
    # What a proposed call would change, by the member that would carry it out.
    Kind("moot/preview", "0267", changes_verdict=False, answers=("mcp/proposal",)),
    # The calls of a task, laid out together; people approve them by trust/accept.
    Kind("moot/plan", "0193", changes_verdict=False, implied_by="mcp/proposal"),
    Kind("moot/outcome", "D-99", changes_verdict=False, sender="gateway", answers=("mcp/request",)),
    Kind(
        "moot/list-proposals",
        "D-96",
        changes_verdict=False,
        handler="proposals",
        relayed=False,
        passes_pause=True,
        everyone=True,
    ),
    Kind("moot/proposals", "D-96", changes_verdict=False, sender="gateway", answers=("moot/list-proposals",)),
)

KINDS: Final[Mapping[str, Kind]] = {row.name: row for row in _ROWS}

# What a gateway of ours answers beyond MEW: its welcomes say so, and clients ask no other gateway for it.
EXTENSIONS: Final = sorted(name for name, row in KINDS.items() if row.everyone and not row.relayed)

# Vendor kinds, and those of ours that the gateway only carries (trust/*).
UNKNOWN: Final = Kind("", "D-08", changes_verdict=False)

# D-15: which answers a member owes, and to what; they need no capability of their own.
OBLIGED: Final[dict[str, frozenset[str]]] = {
    "mcp/response": frozenset({"mcp/request"}),
    "capability/grant-ack": frozenset({"capability/grant"}),
    "participant/compact-done": frozenset({"participant/compact"}),
    "participant/status": frozenset(_CONTROLS),
    "chat/acknowledge": frozenset({"participant/shutdown", "participant/forget"}),
}

# Which answer ends what is owed. A status does not end a compact: compact-done is owed beside it (MEW 3.9.7).
SETTLES: Final[Mapping[str, frozenset[str]]] = OBLIGED | {
    "participant/status": frozenset(_CONTROLS) - {"participant/compact"},
}

# D-15: what a server may send back while it works on a request, though it holds no right to request.
WHILE_ASKED: Final = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})
NOTIFICATION_PREFIX: Final = "notifications/"
CANCELLED: Final = "notifications/cancelled"

# What a member may send in another's place, about a proposal (decision 0210).
DELEGATED_KINDS: Final = frozenset({"mcp/request", "mcp/reject", "moot/approve"})

# The tool by which a bridge asks for a wider box (decision 0271): rules never approve it, nor learn from it.
WIDEN_BOX: Final = "moot/widen-box"

# D-56: the gateway cannot do these for a member, and a legacy member does not know them.
UNSUPPORTED_BY_LEGACY: Final = frozenset(_CONTROLS) - {"participant/pause"}

# D-93: MCPx spellings that a MEW connection must not use.
OLD_SPELLINGS: Final = ("mcp/request:", "mcp/response:", "mcp/proposal:")


def is_reserved(kind: str) -> bool:
    """D-10, D-44: only the gateway speaks these, whatever capabilities a member holds."""
    row = KINDS.get(kind)
    if row is not None:
        return row.sender == "gateway"
    return kind.startswith("system/") or kind in ("system", "presence")


# Those that members send: their names need no look.
MEMBERS_KINDS: Final = frozenset(kind for kind in KINDS if not is_reserved(kind))

# D-52, D-56: kinds with a word of their own. Everything else is carried over by the mechanical rule.
MCPX_WORDS: Final[Mapping[str, str]] = {"mcp/withdraw": "proposal/withdraw", "mcp/reject": "proposal/reject"}
M3P_WORDS: Final[Mapping[str, str]] = {
    "mcp/withdraw": "mcpx.withdraw.proposal",
    "mcp/reject": "mcpx.reject.proposal",
    "chat": "chat.message",
}
# The kinds that carry METHOD and CONTEXT in the legacy dialects.
OPERATION_KINDS: Final = frozenset({"mcp/request", "mcp/response", "mcp/proposal"})
