"""Fills the transcript of a member and compacts it before it is full (MEW 3.9.4, 3.9.5)."""

from __future__ import annotations

import logging
from typing import Final

from moot.participant.connection.envelope_sender import EnvelopeSender
from moot.participant.connection.message_feed import Spawn
from moot.participant.control.controls import Controls
from moot.participant.control.status_reporter import StatusReporter
from moot.participant.conversation.contexts import Contexts
from moot.participant.conversation.transcript import Transcript
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json

log = logging.getLogger(__name__)

# What a transcript keeps: what was said and done, not who joined and left.
_RECORDED: Final = frozenset(
    {
        "chat",
        "mcp/request",
        "mcp/response",
        "mcp/proposal",
        "mcp/withdraw",
        "mcp/reject",
        "reasoning/start",
        "reasoning/thought",
        "reasoning/conclusion",
    }
)


class TranscriptRecorder:
    """Adds what arrives to the transcript of a member that has one."""

    def __init__(
        self,
        sender: EnvelopeSender,
        contexts: Contexts,
        controls: Controls,
        reporter: StatusReporter,
        spawn: Spawn,
    ) -> None:
        self._sender = sender
        self._contexts = contexts
        self._controls = controls
        self._reporter = reporter
        self._spawn = spawn
        self._reported_limit = False
        self._compacting = False

    def record(self, envelope: Envelope, transcript: Transcript) -> None:
        kind = envelope.kind
        if kind not in _RECORDED:
            return
        if kind == "mcp/request" and "id" not in envelope.payload:
            return  # notifications are no part of a conversation
        me = self._sender.me
        if kind == "reasoning/start":
            foreign = envelope.sender != me
        else:
            sequence = self._contexts.sequence_of(envelope.context)
            foreign = sequence is not None and sequence.owner != me
        transcript.add(envelope, foreign=foreign)
        if not transcript.is_beyond(transcript.report_at_share):
            self._reported_limit = False
            return
        if not self._reported_limit:
            self._reported_limit = True
            self._spawn(self._reporter.report_if_allowed(status="near_limit"))
        if transcript.is_beyond(transcript.compact_at_share) and not self._compacting:
            self._compacting = True
            self._spawn(self._compact())

    async def _compact(self) -> None:
        """MEW 3.9.5: afterwards everybody gets the status and the headroom."""
        try:
            freed = await self._controls.on_compact(None, None)
            more: dict[str, Json] = {"status": "compacted" if freed is not None else "nothing_to_compact"}
            if freed is not None:
                more |= {"freed_tokens": freed.tokens, "freed_messages": freed.messages}
            await self._reporter.report_if_allowed(**more)
        except Exception:
            # User code in a task of its own.
            self._sender.counts.failed_handlers += 1
            log.exception("a compaction failed")
        finally:
            self._compacting = False
