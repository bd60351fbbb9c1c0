"""An agent: it reads chats, shares its reasoning, calls or proposes tools, and answers.

    chat for us → acknowledge → reasoning/start → model ⇄ tools (request or proposal) → conclusion → chat

Turns run one after the other. Members with the right can stop one (reasoning/cancel, chat/cancel, restart,
shutdown), and one ends when its asker has left. Only a question begins a turn: a chat about a rejection or a
proposal is a remark on what the agent does already. However a turn ends, the asker is told. The space sees
exactly what the agent does, because both are the same envelopes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Final

from moot.agents.model.agent_controls import AgentControls, AgentStatus
from moot.agents.model.agent_settings import AgentSettings, ModelSettings
from moot.agents.model.conversation import prompt_of, summary_prompt
from moot.agents.model.model import Model
from moot.agents.model.model_reply import Message, ModelFailed, ModelReply, TextHandler, ToolCall
from moot.agents.model.question_inbox import QuestionInbox
from moot.agents.model.reasoning_stream import ReasoningStream
from moot.agents.model.spending import Spending
from moot.agents.model.spending_file import SpendingFile
from moot.agents.model.toolbox import FIND, Toolbox
from moot.errors import (
    ConnectionClosed,
    ConnectionLost,
    Interrupted,
    MootError,
    NotAllowed,
    OutboxFull,
    Paused,
    ReasoningCancelled,
    Refused,
    TimedOut,
)
from moot.mcp.eras import OfferKind
from moot.offers.offer_table import OfferTable
from moot.participant import CloseReason, JoinedSpace, Reasoning, Transcript, connect
from moot.participant.connection.roster import PresenceEvent
from moot.participant.programs.offer_discovery import OfferDiscovery
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json

# Calls of tools within one turn, and how many proposals may be rejected or left undecided in it: after a
# second no, the people who decide have been asked enough.
MAX_TOOL_CALLS: Final = 64
MAX_REJECTIONS: Final = 2
# Tokens of all requests of one turn; each step sends the whole context again.
TURN_TOKENS: Final = 600_000
# The context of the model; it is compacted at this share of it, and its size told at the other (MEW 3.9.5).
COMPACT_AT_SHARE: Final = 0.9
REPORT_AT_SHARE: Final = 0.8
# How long a turn goes on after the member that asked has left, if it does not come back.
ASKER_AWAY_SECONDS: Final = 60.0
# Reasoning longer than this is also sent as a stream (MEW 3.10.1).
STREAM_CHARS: Final = 2_000

log = logging.getLogger(__name__)


class Agent:
    """One agent in one space."""

    def __init__(
        self, model: Model, settings: AgentSettings, *, spending_file: SpendingFile | None = None
    ) -> None:
        limits = settings.limits
        self.settings = settings
        self.model = model
        self.status = AgentStatus()
        self.spending = Spending(model.settings, limits, file=spending_file)
        self.transcript = Transcript(
            max_tokens=limits.context_tokens,
            compact_at_share=COMPACT_AT_SHARE,
            report_at_share=REPORT_AT_SHARE,
            summarise=self._summarise,
        )
        self.controls = AgentControls(self.transcript, self._metrics, self.drop_turns)
        self._offers = OfferTable([FIND])
        # Why the current turn was ended without its asker, "" if it was not.
        self._abandoned = ""
        self._current: tuple[Envelope, asyncio.Task[None]] | None = None
        self._space: JoinedSpace | None = None
        # Of the space that it has joined; None before.
        self.inbox: QuestionInbox | None = None

    def _metrics(self) -> dict[str, Json]:
        inbox, status = self.inbox, self.status
        return {
            "latency_ms": status.latency_ms,
            "turns": status.turns,
            "turns_waiting": 0 if inbox is None else inbox.queue.waiting,
            "tool_calls": status.tool_calls,
            "prompt_tokens": status.prompt_tokens,
            "completion_tokens": status.completion_tokens,
            "tokens_of_last_day": self.spending.tokens,
            **({"cost_of_last_day": round(cost, 4)} if (cost := self.spending.cost) else {}),
            "model": self.model.settings.model,
        }

    async def run(self, space: JoinedSpace) -> CloseReason:
        """Answer chats until the connection ends for good. Call this first, so that no chat is missed."""
        self._space = space
        inbox = self.inbox = QuestionInbox(space, self.settings, lambda: self._current is not None)
        inbox.start()
        space.on("chat/cancel")(self._handle_cancel)
        space.roster.on_change(self._handle_presence)

        def changed(_: set[OfferKind]) -> None:
            """The model gets the list of tools in every step."""

        async with OfferDiscovery(space, self._offers, changed) as discovery, asyncio.TaskGroup() as group:
            space.on("system/welcome")(lambda _: discovery.refresh_missing())
            toolbox = Toolbox(space, self._offers, discovery)
            # If one of these fails, so does the agent, and is started again: better than one that is deaf.
            tasks = (
                group.create_task(inbox.catch_up()),
                group.create_task(self._run_turns(space, toolbox, inbox)),
            )
            try:
                return await space.stay()
            finally:
                for task in tasks:
                    task.cancel()

    async def drop_turns(self, why: str) -> None:
        """Cancel the current turn and drop those that wait; whoever asked is told, if we may still talk."""
        space, inbox, current = self._space, self.inbox, self._current
        if space is None or inbox is None:
            return
        dropped = inbox.queue.remove(lambda _: True)
        if current is not None:
            dropped.insert(0, current[0])
            current[1].cancel(why)
        for chat in dropped:
            # Once: whoever controls an agent does not wait. After a shutdown nothing is delivered any more.
            with suppress(MootError):
                await space.chat(f"I stopped: I was {why}. Ask again.", to=chat.sender, about=chat.id)

    # Chats

    def _handle_presence(self, event: PresenceEvent) -> None:
        grace = ASKER_AWAY_SECONDS
        if event.event == "leave" and event.member is not None and grace > 0:
            asyncio.get_running_loop().call_later(grace, self._drop_turns_of, event.member.id)

    def _drop_turns_of(self, member: str) -> None:
        """Nobody needs an answer whose asker is gone; what is proposed for it is withdrawn."""
        space, inbox, current = self._space, self.inbox, self._current
        if space is None or inbox is None or member in space.roster:
            return
        inbox.queue.remove(lambda chat: chat.sender == member)
        if current is not None and current[0].sender == member:
            self._abandoned = f"I stopped: {member}, who asked, has left."
            current[1].cancel(self._abandoned)

    def _handle_cancel(self, envelope: Envelope) -> None:
        """MEW 3.4.2: a cancelled chat needs no answer."""
        current = self._current
        if current is not None and current[0].id in envelope.correlation_id:
            current[1].cancel("the chat was cancelled")
        if self.inbox is not None:
            self.inbox.queue.remove(lambda chat: chat.id in envelope.correlation_id)

    # Turns

    async def _run_turns(self, space: JoinedSpace, toolbox: Toolbox, inbox: QuestionInbox) -> None:
        while True:
            chat = await inbox.queue.next()
            task = asyncio.ensure_future(self._run_turn(space, toolbox, inbox, chat))
            self._current = (chat, task)
            inbox.remarks.take_remarks()
            self._abandoned = ""
            try:
                await asyncio.wait({task})
            finally:
                self._current = None
                task.cancel()
            if self._abandoned:
                with suppress(MootError):
                    await space.chat(self._abandoned, about=chat.id)
            if not task.cancelled() and (fault := task.exception()) is not None:
                log.error("a turn failed", exc_info=fault)
                await inbox.answer(chat, "I cannot answer: something failed in me. My log has the details.")

    async def _run_turn(
        self, space: JoinedSpace, toolbox: Toolbox, inbox: QuestionInbox, chat: Envelope
    ) -> None:
        self.status.turns += 1
        try:
            answer = await self._answer_chat(space, toolbox, inbox, chat)
        except ReasoningCancelled as stopped:
            log.info("a turn was stopped", extra={"by": stopped.by})
            return
        except ModelFailed as fault:
            log.warning("the model failed", extra={"why": str(fault)})
            answer = f"I cannot answer: {fault}."
        except (Interrupted, ConnectionClosed):
            return
        await inbox.answer(chat, answer)

    async def _answer_chat(
        self, space: JoinedSpace, toolbox: Toolbox, inbox: QuestionInbox, chat: Envelope
    ) -> str:
        await self._wait_while_paused(space)
        async with AsyncExitStack() as stack:
            reasoning: Reasoning | None = None
            if self.settings.show_reasoning and space.may("reasoning/start", {"message": ""}):
                about = space.reasoning(
                    f"{chat.sender} asks: {str(chat.payload['text'])[:200]}", about=chat.id
                )
                # What cannot be shared, because of a rate limit or a lost connection, need not end the turn.
                with suppress(ConnectionLost, OutboxFull, Paused, Refused, TimedOut):
                    reasoning = await stack.enter_async_context(about)
            return await self._run_steps(space, toolbox, inbox, reasoning, chat)

    async def _run_steps(
        self,
        space: JoinedSpace,
        toolbox: Toolbox,
        inbox: QuestionInbox,
        reasoning: Reasoning | None,
        chat: Envelope,
    ) -> str:
        limits = self.settings.limits
        budget = TurnBudget()
        # A server often joins just before somebody asks: without its tools the model would say it has none.
        late = await toolbox.wait_for_lists(chat.sender)
        messages: list[Message] = prompt_of(
            self.transcript,
            space.me,
            self.settings.instructions,
            ", ".join(sorted(space.roster)) or "nobody else",
            late=", ".join(late),
            question=chat,
        )
        for step in range(limits.max_steps):
            await self._wait_while_paused(space)
            # One more answer after the end of the budget, for the model to say how far it came.
            was_ended = budget.ended()
            reply = await self._complete(space, toolbox, messages, reasoning)
            budget.record_reply(reply)
            if not reply.calls:
                if reasoning is not None:
                    await self._wait_while_paused(space)
                    with suppress(ConnectionLost, NotAllowed, OutboxFull, Paused):
                        await reasoning.conclude(f"answered after {step + 1} steps" if step else "answered")
                return _final_text(reply)
            if was_ended is not None:
                return f"I stopped: {was_ended}. Tell me how to go on."
            messages.append(reply.as_message())
            if reasoning is not None and (reply.text or reply.reasoning):
                await self._send_thought(space, reasoning, reply.reasoning or reply.text)
            results = [await self._use(space, toolbox, call, reasoning, budget) for call in reply.calls]
            _add_remarks(inbox.remarks.take_remarks(), results)
            messages += [
                {"role": "tool", "tool_call_id": call.id, "content": text}
                for call, text in zip(reply.calls, results, strict=True)
            ]
        return f"I stopped after {limits.max_steps} steps without an end; tell me how to go on."

    async def _use(
        self,
        space: JoinedSpace,
        toolbox: Toolbox,
        call: ToolCall,
        reasoning: Reasoning | None,
        budget: TurnBudget,
    ) -> str:
        await self._wait_while_paused(space)
        if (refusal := budget.refusal_of(call)) is not None:
            return refusal
        self.status.tool_calls += 1
        result = await toolbox.use(call, reasoning)
        if result.rejection:
            budget.record_rejection(call, result.rejection)
        return result.text

    async def _complete(
        self, space: JoinedSpace, toolbox: Toolbox, messages: list[Message], reasoning: Reasoning | None
    ) -> ModelReply:
        start = time.monotonic()
        stream = ReasoningStream(space, reasoning, STREAM_CHARS)
        try:
            reply = await self._ask_model(messages, toolbox.definitions(), stream.write)
        except BaseException as fault:
            await stream.end(fault)
            raise
        await stream.end()
        self.status.latency_ms = round((time.monotonic() - start) * 1000)
        return reply

    async def _ask_model(
        self, messages: list[Message], tools: list[Message], on_text: TextHandler | None = None
    ) -> ModelReply:
        """Every request to the model is made and counted here."""
        if (exhausted := self.spending.exhausted()) is not None:
            raise ModelFailed(exhausted)
        reply = await self.model.complete(messages, tools, on_text)
        self.spending.add(reply)
        self.status.prompt_tokens += reply.prompt_tokens
        self.status.completion_tokens += reply.completion_tokens
        return reply

    async def _send_thought(self, space: JoinedSpace, reasoning: Reasoning, text: str) -> None:
        await self._wait_while_paused(space)
        most = STREAM_CHARS
        with suppress(ConnectionLost, NotAllowed, OutboxFull, Paused):
            await reasoning.thought(text if len(text) <= most else f"{text[:most]} …")

    async def _wait_while_paused(self, space: JoinedSpace) -> None:
        """MEW 3.9.1: a paused agent waits."""
        while space.paused is not None and space.close_reason is None:
            with suppress(MootError):
                await space.ready()

    async def _summarise(self, envelopes: list[Envelope]) -> str:
        try:
            reply = await self._ask_model(summary_prompt(envelopes), [])
        except ModelFailed as fault:
            # The room is needed in any case; the transcript says what is lost.
            log.warning("no summary", extra={"why": str(fault)})
            return f"({len(envelopes)} earlier messages were dropped without a summary)"
        return reply.text or f"({len(envelopes)} earlier messages were dropped)"


def _final_text(reply: ModelReply) -> str:
    """What the asker reads: the answer, and why there is none or only a part of it."""
    if not reply.cut_short:
        return reply.text.strip() or "The model answered nothing. Ask again, or in other words."
    if not reply.text.strip():
        return f"I cannot answer: {reply.cut_short}."
    return f"{reply.text}\n[incomplete: {reply.cut_short}]"


def _add_remarks(remarks: list[Envelope], results: list[str]) -> None:
    """Add what people said about proposals meanwhile to the last result, unless one contains it already.

    Not as messages of their own: several endpoints refuse a user's message after a result.
    """
    for chat in remarks:
        text = str(chat.payload["text"])
        if not any(text in result for result in results):
            results[-1] += f"\n{chat.sender} says about your proposal: {text}"


async def serve_agent(
    url: str,
    space: str,
    token: str | Callable[[], str],
    model: ModelSettings,
    settings: AgentSettings,
    *,
    name: str | None = None,
    spending_file: SpendingFile | None = None,
) -> CloseReason:
    """Join a space as an agent and stay until it ends. What it spends in a day is kept in `spending_file`."""
    async with Model(model) as endpoint:
        agent = Agent(endpoint, settings, spending_file=spending_file)
        joining = connect(url, space, token, name=name, controls=agent.controls)
        async with joining as joined:
            log.info("joined", extra={"space": space, "participant": joined.me})
            return await agent.run(joined)


# What one turn may still do: a question leads to a bounded number of calls, proposals and tokens.
#
# The bound is in the agent and not in its instructions, because models do not keep to those: one that was
# rejected proposes a variant, and the next, as long as somebody goes on answering.


class TurnBudget:
    """Counts within one turn."""

    def __init__(self) -> None:
        self._tool_calls = 0
        self._tokens = 0
        # Why each proposal came to nothing, in order.
        self._rejections: list[str] = []
        self._rejected_calls: set[tuple[str, str]] = set()

    def refusal_of(self, call: ToolCall) -> str | None:
        """Why a call is not made; None if it may be."""
        if (call.name, call.arguments) in self._rejected_calls:
            return "Not proposed again: exactly this was rejected. Accept that, or ask what else would help."
        if (ended := self.ended()) is not None:
            return f"Not called: {ended}. Answer now, and say what was done and what was not."
        self._tool_calls += 1
        return None

    def record_rejection(self, call: ToolCall, why: str) -> None:
        self._rejections.append(why)
        self._rejected_calls.add((call.name, call.arguments))

    def record_reply(self, reply: ModelReply) -> None:
        self._tokens += reply.prompt_tokens + reply.completion_tokens

    def ended(self) -> str | None:
        """Why nothing more is called in this turn; None while something may be."""
        if len(self._rejections) >= MAX_REJECTIONS:
            return f"{len(self._rejections)} proposals came to nothing ({'; '.join(self._rejections)[:300]})"
        if self._tool_calls >= MAX_TOOL_CALLS:
            return f"{self._tool_calls} calls were made, the limit of one turn (tool_calls)"
        if self._tokens >= TURN_TOKENS:
            return f"{self._tokens} tokens were used, the limit of one turn is {TURN_TOKENS}"
        return None
