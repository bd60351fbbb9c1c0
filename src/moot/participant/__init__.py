"""Taking part in a space: the Python SDK.

    async with connect("http://localhost:8080", "lab", token) as space:
        @space.tool
        def add(a: int, b: int) -> int:
            "Add two numbers."
            return a + b
        await space.stay()

`connect` gives a `JoinedSpace`; everything else hangs on that.
"""

from moot.participant.chat import format_of
from moot.participant.connecting import connect, token_from
from moot.participant.contexts import Sequence, is_within, levels
from moot.participant.controls import Control, Controls
from moot.participant.hosting import Request
from moot.participant.limits import ParticipantLimits
from moot.participant.managing import Grant, Invitation, Revocation
from moot.participant.memory import Freed, Transcript
from moot.participant.misbehaviour import Misdeed
from moot.participant.outcome import REJECT_REASONS, Ending, Gap, Outcome, Progress, Rejection, Sent
from moot.participant.proposal import Proposal
from moot.participant.proposals import SeenProposal
from moot.participant.reasoning import Reasoning
from moot.participant.roster import Member, PresenceEvent
from moot.participant.space import JoinedSpace
from moot.participant.stream import Chunk, StreamHandle, StreamInfo
from moot.participant.tools import RawResult, Tool, ToolError, tool_of

__all__ = [
    "REJECT_REASONS",
    "Chunk",
    "Control",
    "Controls",
    "Ending",
    "Freed",
    "Gap",
    "Grant",
    "Invitation",
    "JoinedSpace",
    "Member",
    "Misdeed",
    "Outcome",
    "ParticipantLimits",
    "PresenceEvent",
    "Progress",
    "Proposal",
    "RawResult",
    "Reasoning",
    "Rejection",
    "Request",
    "Revocation",
    "SeenProposal",
    "Sent",
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
