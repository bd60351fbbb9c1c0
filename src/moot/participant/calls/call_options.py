"""The keyword arguments that `request`, `call`, `perform`, `propose` and `approve` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from moot.participant.calls.outcome import Progress
from moot.participant.connection.envelope_sender import Addressees
from moot.protocol.operation import Json

if TYPE_CHECKING:
    from moot.participant.decisions.own_proposal import Proposal

ProgressHandler = Callable[[Progress], Any]
ProposedHandler = Callable[["Proposal"], None]
LogHandler = Callable[[Mapping[str, Json]], Any]
# Whether to propose what we may not request: if needed, never, or even if we may request it.
ProposeMode = Literal["auto", "never", "always"]


class CallOptions(TypedDict, total=False):
    """Options of every operation on another member."""

    # How long to wait; without it `request_seconds` of the limits, for a proposal `proposal_seconds`.
    timeout_seconds: float | None
    # Called or awaited with each `Progress` that the host reports.
    progress: ProgressHandler | None
    # Called or awaited with the params of each log message of the host.
    log: LogHandler | None
    # The context that the envelope belongs to.
    context: str | None


class RequestOptions(CallOptions, total=False):
    """Options of `request`."""

    # Ids of the envelopes that this one refers to.
    about: Addressees


class PerformOptions(CallOptions, total=False):
    """Options of `call` and `perform`."""

    # Go on waiting after a rejection, as somebody else may still approve it.
    wait_for_others: bool
    # `auto` proposes what we may not request; `never` and `always` do what they say.
    propose: ProposeMode
    # Called with the `Proposal`, once, when it was proposed and before its decision is waited for.
    on_proposed: ProposedHandler | None


class ProposeOptions(RequestOptions, total=False):
    """Options of `propose`."""

    # The id of the proposal, for whoever writes it down before it is sent; a new one by default.
    id: str
    # Leave it open when we leave the space; otherwise it is withdrawn then.
    stay_open: bool
    # Go on waiting after a rejection, as somebody else may still approve it.
    wait_for_others: bool


class ApproveOptions(CallOptions, total=False):
    """Options of `approve`."""

    # Who shall do it; only needed for a proposal that names no host.
    to: Addressees
    # Approve it with changes: these are the params of the call that is made in its place.
    params: Mapping[str, Json] | None
    # Earlier requests of the same effect (`repeats`) that whoever approves it has seen: it is done again.
    repeats: Sequence[str]
    # False: never vote, where votes are missing. For programs that decide by rules.
    vote: bool
