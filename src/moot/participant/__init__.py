"""Taking part in a space: the Python SDK.

    async with connect("http://localhost:8080", "lab", token) as space:
        @space.tool
        def add(a: int, b: int) -> int:
            "Add two numbers."
            return a + b
        await space.stay()

`connect` gives a `JoinedSpace`; everything else hangs on that.
"""

from moot.participant.calls.call_options import (
    ApproveOptions,
    CallOptions,
    PerformOptions,
    ProposeOptions,
    RequestOptions,
)
from moot.participant.calls.outcome import REJECT_REASONS, Outcome, Progress, Rejection
from moot.participant.connect import connect
from moot.participant.connection.envelope_sender import CloseReason, SentEnvelope
from moot.participant.connection.inbound_check import ProtocolViolation
from moot.participant.connection.message_feed import MissedMessages
from moot.participant.connection.roster import Member, PresenceEvent
from moot.participant.control.administration import Grant, Invitation
from moot.participant.control.controls import Control, Controls
from moot.participant.control.pending_acks import Revocation
from moot.participant.conversation.chat import format_of
from moot.participant.conversation.contexts import ReasoningSequence, is_within, levels
from moot.participant.conversation.reasoning import Reasoning
from moot.participant.conversation.stream import Chunk, StreamInfo
from moot.participant.conversation.stream_handle import StreamHandle
from moot.participant.conversation.transcript import CompactionResult, Transcript
from moot.participant.decisions.own_proposal import Proposal
from moot.participant.decisions.plan_client import LaidOutPlan
from moot.participant.decisions.seen_proposal import SeenProposal
from moot.participant.joined_space import JoinedSpace
from moot.participant.limits import ParticipantLimits
from moot.participant.own_token import token_from
from moot.participant.serving.own_offers import ResourceOptions
from moot.participant.serving.request_server import IncomingRequest
from moot.participant.serving.tools import RawResult, Tool, ToolError, ToolOptions, tool_of
from moot.private_files import name_from
from moot.protocol.call_risks import Risk
from moot.protocol.changes import Change
from moot.protocol.proposal_life import ProposalComment

__all__ = [
    "REJECT_REASONS",
    "ApproveOptions",
    "CallOptions",
    "Change",
    "Chunk",
    "CloseReason",
    "CompactionResult",
    "Control",
    "Controls",
    "Grant",
    "IncomingRequest",
    "Invitation",
    "JoinedSpace",
    "LaidOutPlan",
    "Member",
    "MissedMessages",
    "Outcome",
    "ParticipantLimits",
    "PerformOptions",
    "PresenceEvent",
    "Progress",
    "Proposal",
    "ProposalComment",
    "ProposeOptions",
    "ProtocolViolation",
    "RawResult",
    "Reasoning",
    "ReasoningSequence",
    "Rejection",
    "RequestOptions",
    "ResourceOptions",
    "Revocation",
    "Risk",
    "SeenProposal",
    "SentEnvelope",
    "StreamHandle",
    "StreamInfo",
    "Tool",
    "ToolError",
    "ToolOptions",
    "Transcript",
    "connect",
    "format_of",
    "is_within",
    "levels",
    "name_from",
    "token_from",
    "tool_of",
]
