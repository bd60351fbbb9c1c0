"""What happens in the space, as changes of tasks.

    chat/acknowledge, reasoning/start of the member    working
    proposal of the member about it                    input required, until it is decided
    a comment on that proposal, or on the caller's     a message of the status, for as long as it is open
    chat of the member about it                        an artifact
    that, and no reasoning and no proposal is open     completed
    chat/cancel                                        canceled
    the caller's own proposal                          input required → working → completed, failed, rejected

A member of its own watches, not the callers' connections: so it goes on when a caller has gone, and after a
restart it reads in the gateway's history what came meanwhile.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from a2a.types import Part, TaskState
from google.protobuf.json_format import ParseDict, ParseError

from moot.agents.a2a import task_book
from moot.agents.a2a.a2a_settings import ServeSettings
from moot.agents.a2a.task_book import ServedTask, TaskBook
from moot.errors import MootError
from moot.operations.text.call_text import proposal_link
from moot.participant import JoinedSpace, SeenProposal
from moot.participant.calls.outcome import Rejection
from moot.participant.connection.gateway_reads import HISTORY_MARGIN_SECONDS
from moot.protocol.envelope import Envelope
from moot.protocol.latest_dict import LatestDict

# An agent may end its reasoning a moment before or after its answer.
SETTLE_SECONDS: Final = 0.3

log = logging.getLogger(__name__)

_MAX_SEEN: Final = 20_000
_TICK_SECONDS: Final = 15.0
_EXPLANATION_SECONDS: Final = 1.0
_WORKING: Final = TaskState.TASK_STATE_WORKING
_INPUT: Final = TaskState.TASK_STATE_INPUT_REQUIRED


class TaskTracker:
    """Follows one space for all tasks."""

    def __init__(self, space: JoinedSpace, book: TaskBook, settings: ServeSettings) -> None:
        self._space = space
        self._book = book
        self._settings = settings
        self._seen: LatestDict[str, None] = LatestDict(_MAX_SEEN)
        self._reasoning: dict[str, ServedTask] = {}
        self._watched: set[str] = set()
        self._last = book.clock()

    async def start(self) -> None:
        """Follow the space, and learn what came of the tasks of the last run."""
        space = self._space
        space.on("*")(self._handle)
        space.on_proposal(self._handle_proposal)
        space.on_reconnected(self._catch_up)
        for served in self._book:
            if not served.is_over and served.request_id:
                self._book.set_state(
                    served,
                    TaskState.TASK_STATE_FAILED,
                    "This service was restarted while the call ran: what came of it is not known here. Look "
                    "in the space before you call again.",
                )
        left = [each for each in self._book if not each.is_over]
        if left:
            # A task was written down before its chat was sent.
            self._last = min(each.updated for each in left)
            await self._catch_up()

    async def run(self) -> None:
        """End what takes too long, and forget what ended long ago; until cancelled."""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self.tick()

    def tick(self) -> None:
        self._space.proposals.open()
        before = self._book.clock() - task_book.TASK_SECONDS
        for served in self._book:
            if not served.is_over and served.began < before:
                text = f"There was no end within {task_book.TASK_SECONDS:g} s."
                self._book.set_state(served, TaskState.TASK_STATE_FAILED, text)
        self._book.prune()

    async def _catch_up(self) -> None:
        space = self._space
        with suppress(MootError):
            for envelope in await space.recall(self._last - HISTORY_MARGIN_SECONDS):
                self._handle(envelope)
            for seen in space.proposals:
                self._handle_proposal(seen)
            for served in self._book:
                if not served.is_over and served.proposal_id and served.proposal_id not in self._watched:
                    await self._look_up(served)

    async def _look_up(self, served: ServedTask) -> None:
        """The gateway's word on a proposal that the history does not have any more."""
        told = await self._space.look_up_proposal(served.proposal_id)
        if told is not None and told.state == "open":
            return
        what = "is not known here" if told is None else f"was {told.state}"
        self._book.set_state(
            served,
            TaskState.TASK_STATE_FAILED,
            f"The proposal {what}, and its result was missed: look in the space before you call again.",
        )

    # Envelopes

    def _handle(self, envelope: Envelope) -> None:
        if envelope.id in self._seen:
            return
        self._seen[envelope.id] = None
        self._last = self._book.clock()
        match envelope.kind:
            case "reasoning/thought" | "reasoning/conclusion" | "reasoning/cancel":
                self._take_reasoning(envelope)
                return
            case "chat" | "chat/acknowledge" | "chat/cancel" | "reasoning/start":
                pass
            case _:
                return
        for id in envelope.correlation_id or self._meant_chat(envelope):
            served = self._book.of_chat(id)
            if served is None or served.is_over:
                continue
            if envelope.kind == "chat/cancel":
                text = f"{envelope.sender} cancelled the message in the space."
                self._book.set_state(served, TaskState.TASK_STATE_CANCELED, text)
            elif self._is_member(served, envelope.sender):
                self._follow_envelope(served, id, envelope)

    def _meant_chat(self, envelope: Envelope) -> list[str]:
        """People answer without a reference: what is written to a caller answers its only open message."""
        if envelope.kind != "chat" or len(envelope.to) != 1:
            return []
        to = self._space.roster.names_of(envelope.to)[0]
        found = [
            each
            for each in self._book
            if not each.is_over
            and each.chat_ids
            and each.owner == to
            and self._is_member(each, envelope.sender)
        ]
        return found[0].chat_ids[-1:] if len(found) == 1 else []

    def _is_member(self, served: ServedTask, sender: str) -> bool:
        return sender in (served.member, self._space.roster.id_of(served.member))

    def _follow_envelope(self, served: ServedTask, chat_id: str, envelope: Envelope) -> None:
        match envelope.kind:
            case "chat/acknowledge":
                self._work(served)
            case "reasoning/start":
                served.reasoning.add(envelope.id)
                self._reasoning[envelope.id] = served
                self._work(served)
            case "chat":
                served.answered.append(chat_id)
                text = str(envelope.payload.get("text", ""))
                self._book.add_artifact(served, [Part(text=text)], id=envelope.id, name="answer")
                self._settle(served)

    def _work(self, served: ServedTask, text: str = "") -> None:
        if not served.pending:
            self._book.set_state(served, _WORKING, text)

    def _take_reasoning(self, envelope: Envelope) -> None:
        for id in (envelope.context or "").split("/"):
            served = self._reasoning.get(id)
            if served is None or not self._is_member(served, envelope.sender):
                continue
            if envelope.kind == "reasoning/thought":
                if self._settings.share_reasoning:
                    self._work(served, str(envelope.payload.get("message", ""))[:4_000])
            elif (envelope.context or "").endswith(id):
                served.reasoning.discard(id)
                del self._reasoning[id]
                self._settle(served)
            return

    def _settle(self, served: ServedTask) -> None:
        """Complete it in a moment, if nothing happens until then."""
        served.version += 1
        asyncio.get_running_loop().call_later(SETTLE_SECONDS, self._complete, served, served.version)

    def _complete(self, served: ServedTask, version: int) -> None:
        is_answered = set(served.answered) >= set(served.chat_ids)
        if served.version == version and is_answered and not served.reasoning and not served.pending:
            self._book.set_state(served, TaskState.TASK_STATE_COMPLETED)

    # Proposals

    def _handle_proposal(self, seen: SeenProposal) -> None:
        if seen.id in self._watched:
            return
        made = self._book.of_proposal(seen.id)
        if made is not None:
            self._watched.add(seen.id)
            seen.watchers.append(lambda: self._take_call(made, seen))
            self._take_call(made, seen)
            return
        served = self._task_of(seen)
        if served is None or served.is_over or seen.status != "pending":
            return
        self._watched.add(seen.id)
        served.pending[seen.id] = str(seen.params.get("name") or seen.method)
        seen.watchers.append(lambda: self._take_decision(served, seen))
        self._book.set_state(served, _INPUT, self._describe_pending(seen))

    def _task_of(self, seen: SeenProposal) -> ServedTask | None:
        """The task that a member's proposal is about: by the chat, or by the reasoning."""
        about = [self._book.of_chat(id) for id in seen.envelope.correlation_id]
        about += [self._reasoning.get(id) for id in (seen.envelope.context or "").split("/")]
        return next(
            (each for each in about if each is not None and self._is_member(each, seen.proposer)), None
        )

    def _describe_pending(self, seen: SeenProposal) -> str:
        what = str(seen.params.get("name") or seen.method)
        host = f" of {seen.to[0]}" if seen.to else ""
        link = proposal_link(self._settings.console, self._space.space, seen.id)
        where = f" It is decided at {link}." if link else ""
        return (
            f"{seen.proposer} proposes to call {what}{host}. Someone in the space who may has to approve or "
            f"reject it.{where} This goes on by itself then."
        )

    def _take_decision(self, served: ServedTask, seen: SeenProposal) -> None:
        """A proposal of the member has changed."""
        if seen.status == "pending":
            self._tell_comments(served, seen)
        if seen.status == "pending" or seen.id not in served.pending:
            return
        del served.pending[seen.id]
        self._watched.discard(seen.id)
        self._work(served, f"The proposal was {seen.state_text}.")
        self._settle(served)

    def _take_call(self, served: ServedTask, seen: SeenProposal) -> None:
        """The caller's own proposal has changed."""
        set_state = self._book.set_state
        if served.is_over:
            return
        if seen.result is not None:
            self.finish_call(served, seen.result)
        elif seen.fault is not None:
            set_state(served, TaskState.TASK_STATE_FAILED, str(seen.fault))
        elif seen.status == "fulfilled":
            set_state(served, _WORKING, f"Approved by {seen.fulfilled_by or 'somebody'}.")
        elif seen.state == "rejected":
            self._space.spawn(self._reject(served, seen.rejections[0]))
        elif seen.status == "withdrawn":
            set_state(served, TaskState.TASK_STATE_CANCELED, "The proposal was withdrawn.")
        elif seen.status == "expired":
            set_state(served, TaskState.TASK_STATE_FAILED, "Nobody decided on the proposal in time.")
        elif served.task.status.state != _INPUT:
            set_state(served, _INPUT, self._describe_pending(seen))
        if seen.status == "pending":
            self._tell_comments(served, seen)

    def _tell_comments(self, served: ServedTask, seen: SeenProposal) -> None:
        """What others say about it, each once; the caller answers with a message to the task."""
        told = {each.message_id for each in served.task.history}
        what = str(seen.params.get("name") or seen.method)
        # The history is bounded: those before one that it still has were told.
        last = max((index for index, each in enumerate(seen.comments) if each.id in told), default=-1)
        for each in seen.comments[last + 1 :]:
            if served.owner not in self._space.roster.names_of([each.by]):
                text = f"{each.by} about the proposal to call {what}: {each.text}"
                self._book.set_state(served, _INPUT, text, id=each.id)

    async def _reject(self, served: ServedTask, rejection: Rejection) -> None:
        """Its explanation is a chat that follows."""
        said = await rejection.explanation(_EXPLANATION_SECONDS)
        text = f"Rejected by {rejection.by} ({rejection.reason}){f': {said}' if said else ''}"
        self._book.set_state(served, TaskState.TASK_STATE_REJECTED, text)

    def finish_call(self, served: ServedTask, result: Mapping[str, Any]) -> None:
        """The result of a tool is there."""
        self._book.add_artifact(served, parts_of(result), id=f"{served.task.id}-result", name="result")
        is_error = result.get("isError") is True
        self._book.set_state(
            served,
            TaskState.TASK_STATE_FAILED if is_error else TaskState.TASK_STATE_COMPLETED,
            "The tool reports a failure." if is_error else "",
        )


def parts_of(result: Mapping[str, Any]) -> list[Part]:
    """A tool's result as parts: text as text, files as files, everything else as data."""
    parts = []
    content = result.get("content")
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, dict):
            continue
        if isinstance(block.get("text"), str):
            parts.append(Part(text=block["text"]))
        elif isinstance(block.get("data"), str):
            with suppress(binascii.Error, ValueError):
                raw = base64.b64decode(block["data"], validate=True)
                parts.append(Part(raw=raw, media_type=str(block.get("mimeType", ""))))
        else:
            parts += _data_part(block)
    if "structuredContent" in result:
        parts += _data_part(result["structuredContent"])
    return parts or [Part(text="(no output)")]


def _data_part(value: Any) -> list[Part]:
    try:
        return [ParseDict({"data": value}, Part())]
    except (ParseError, RecursionError):
        return []
