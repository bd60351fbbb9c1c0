"""Taking part in a space: the Python SDK.

    async with connect("http://localhost:8080", "lab", token) as space:
        @space.tool
        def add(a: int, b: int) -> int:
            "Add two numbers."
            return a + b
        await space.stay()

`connect` gives a `JoinedSpace`; everything else hangs on that.
"""

from moot.participant.calls.outcome import (
    REJECT_REASONS,
    CloseReason,
    MissedMessages,
    Outcome,
    Progress,
    Rejection,
    SentEnvelope,
)
from moot.participant.connect import connect, token_from
from moot.participant.connection.roster import Member, PresenceEvent
from moot.participant.connection.violation_log import ProtocolViolation
from moot.participant.control.administration import Grant, Invitation, Revocation
from moot.participant.control.controls import Control, Controls
from moot.participant.conversation.chat import format_of
from moot.participant.conversation.contexts import Sequence, is_within, levels
from moot.participant.conversation.reasoning import Reasoning
from moot.participant.conversation.stream import Chunk, StreamHandle, StreamInfo
from moot.participant.conversation.transcript import CompactionResult, Transcript
from moot.participant.decisions.own_proposal import Proposal
from moot.participant.decisions.proposal_list import SeenProposal
from moot.participant.joined_space import JoinedSpace
from moot.participant.limits import ParticipantLimits
from moot.participant.serving.request_server import IncomingRequest
from moot.participant.serving.tools import RawResult, Tool, ToolError, tool_of

__all__ = [
    "REJECT_REASONS",
    "Chunk",
    "CloseReason",
    "CompactionResult",
    "Control",
    "Controls",
    "Grant",
    "IncomingRequest",
    "Invitation",
    "JoinedSpace",
    "Member",
    "MissedMessages",
    "Outcome",
    "ParticipantLimits",
    "PresenceEvent",
    "Progress",
    "Proposal",
    "ProtocolViolation",
    "RawResult",
    "Reasoning",
    "Rejection",
    "Revocation",
    "SeenProposal",
    "SentEnvelope",
    "Sequence",
    "StreamHandle",
    "StreamInfo",
    "Tool",
    "ToolError",
    "Transcript",
    "connect",
    "format_of",
    "is_within",
    "levels",
    "token_from",
    "tool_of",
]
