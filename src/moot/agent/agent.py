"""An agent: it reads chats, shares its reasoning, calls or proposes tools, and answers.

    chat for us → acknowledge → reasoning/start → model ⇄ tools (request or proposal) → conclusion → chat

Turns run one after the other. Members with the right can stop one (reasoning/cancel, chat/cancel, restart,
shutdown). The space sees exactly what the agent does, because both are the same envelopes.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from contextlib import AsyncExitStack, suppress
from typing import Final

from moot.agent.agent_controls import AgentControls, AgentStatus
from moot.agent.agent_settings import AgentSettings, ModelSettings
from moot.agent.conversation import prompt_of, summary_prompt
from moot.agent.model import Message, Model, ModelFailed, ModelReply
from moot.agent.reasoning_stream import ReasoningStream
from moot.agent.toolbox import FIND, Toolbox
from moot.errors import (
    ConnectionClosed,
    Interrupted,
    MootError,
    NotAllowed,
    Paused,
    ReasoningCancelled,
    Refused,
)
from moot.mcp.eras import OfferKind
from moot.offers.offer_table import OfferTable
from moot.participant import CloseReason, JoinedSpace, Reasoning, Transcript, connect
from moot.participant.discovery.offer_discovery import OfferDiscovery
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.resilience.rate_limits import sliding_windows

log = logging.getLogger(__name__)

# Members whose turns are counted at a time; a space has far fewer.
_MAX_COUNTED_MEMBERS: Final = 10_000


class Agent:
    """One agent in one space."""

    def __init__(self, model: Model, settings: AgentSettings) -> None:
        limits = settings.limits
        self.settings = settings
        self.model = model
        self.status = AgentStatus()
        self.transcript = Transcript(
            max_tokens=limits.context_tokens,
            compact_at=limits.compact_at,
            report_at=limits.report_at,
            summarise=self._summarise,
        )
        self.controls = AgentControls(self.transcript, self._metrics, self.drop_turns)
        self._offers = OfferTable([FIND])
        self._turns: asyncio.Queue[Envelope] = asyncio.Queue(limits.queued_turns)
        self._turn_rates = sliding_windows(limits.turns_per_minute, 60.0, max_keys=_MAX_COUNTED_MEMBERS)
        self._current: tuple[Envelope, asyncio.Task[None]] | None = None
        self._space: JoinedSpace | None = None
        # Of the space that it has joined; None before.
        self._toolbox: Toolbox | None = None

    def _metrics(self) -> dict[str, Json]:
        toolbox, status = self._toolbox, self.status
        return {
            **({"search": toolbox.search_mode} if toolbox is not None else {}),
            "latency_ms": status.latency_ms,
            "turns": status.turns,
            "turns_waiting": self._turns.qsize(),
            "tool_calls": status.tool_calls,
            "prompt_tokens": status.prompt_tokens,
            "completion_tokens": status.completion_tokens,
            "model": self.model.settings.model,
        }

    async def run(self, space: JoinedSpace) -> CloseReason:
        """Answer chats until the connection ends for good. Call this first, so that no chat is missed."""
        self._space = space
        space.on("chat")(self._handle_chat)
        space.on("chat/cancel")(self._handle_cancel)
        toolbox = Toolbox(space, self._offers, self.settings.limits, self.settings.search)
        self._toolbox = toolbox

        def changed(_: set[OfferKind]) -> None:
            """The model gets the list of tools in every step."""

        async with OfferDiscovery(space, self._offers, changed) as discovery:
            space.on("system/welcome")(lambda _: discovery.refresh_missing())
            worker = asyncio.ensure_future(self._run_turns(space, toolbox, discovery))
            try:
                return await space.stay()
            finally:
                worker.cancel()
                with suppress(asyncio.CancelledError):
                    await worker

    def drop_turns(self, why: str) -> None:
        """Cancel the current turn and drop those that wait."""
        while not self._turns.empty():
            self._turns.get_nowait()
        if self._current is not None:
            self._current[1].cancel(why)

    # Chats

    async def _handle_chat(self, chat: Envelope) -> None:
        space = self._space
        if space is None or not self._is_for_us(chat):
            return
        limits = self.settings.limits
        if self._turn_rates.take(chat.sender, time.monotonic()):
            log.warning(
                "too many turns", extra={"participant": chat.sender, "limit": limits.turns_per_minute}
            )
            return
        with suppress(NotAllowed, Refused, Paused):
            await space.chats.acknowledge(chat)
        try:
            self._turns.put_nowait(chat)
        except asyncio.QueueFull:
            with suppress(MootError):
                await space.chat(
                    "I have too much to do already: ask again later.", to=chat.sender, about=chat.id
                )

    def _is_for_us(self, chat: Envelope) -> bool:
        space = self._space
        text = chat.payload.get("text")
        if space is None or not isinstance(text, str) or not text.strip():
            return False
        if chat.to:
            return space.me in chat.to or space.name in chat.to
        return self.settings.answers == "all" or any(_mentions(text, name) for name in (space.me, space.name))

    def _handle_cancel(self, envelope: Envelope) -> None:
        """MEW 3.4.2: a cancelled chat needs no answer."""
        current = self._current
        if current is not None and current[0].id in envelope.correlation_id:
            current[1].cancel("the chat was cancelled")
        kept = [chat for chat in _drain(self._turns) if chat.id not in envelope.correlation_id]
        for chat in kept:
            self._turns.put_nowait(chat)

    # Turns

    async def _run_turns(self, space: JoinedSpace, toolbox: Toolbox, discovery: OfferDiscovery) -> None:
        while True:
            chat = await self._turns.get()
            await discovery.wait_settled()
            task = asyncio.ensure_future(self._run_turn(space, toolbox, chat))
            self._current = (chat, task)
            try:
                await asyncio.wait({task})
            finally:
                self._current = None
                task.cancel()
            if not task.cancelled() and (fault := task.exception()) is not None:
                log.error("a turn failed", exc_info=fault)

    async def _run_turn(self, space: JoinedSpace, toolbox: Toolbox, chat: Envelope) -> None:
        self.status.turns += 1
        try:
            answer = await self._answer(space, toolbox, chat)
        except ReasoningCancelled as stopped:
            log.info("a turn was stopped", extra={"by": stopped.by})
            return
        except ModelFailed as fault:
            log.warning("the model failed", extra={"why": str(fault)})
            answer = f"I cannot answer: {fault}."
        except (Interrupted, ConnectionClosed):
            return
        if answer:
            await self._wait_while_paused(space)
            with suppress(MootError):
                await space.chat(answer, to=chat.sender, about=chat.id)

    async def _answer(self, space: JoinedSpace, toolbox: Toolbox, chat: Envelope) -> str:
        await self._wait_while_paused(space)
        async with AsyncExitStack() as stack:
            reasoning: Reasoning | None = None
            if self.settings.show_reasoning and space.may("reasoning/start", {"message": ""}):
                about = space.reasoning(
                    f"{chat.sender} asks: {str(chat.payload['text'])[:200]}", about=chat.id
                )
                reasoning = await stack.enter_async_context(about)
            return await self._run_steps(space, toolbox, reasoning)

    async def _run_steps(self, space: JoinedSpace, toolbox: Toolbox, reasoning: Reasoning | None) -> str:
        limits = self.settings.limits
        messages: list[Message] = prompt_of(
            self.transcript,
            space.me,
            self.settings.instructions,
            ", ".join(sorted(space.roster)) or "nobody else",
        )
        for step in range(limits.steps):
            reply = await self._complete(space, toolbox, messages, reasoning)
            if not reply.calls:
                if reasoning is not None:
                    await self._wait_while_paused(space)
                    await reasoning.conclude(f"answered after {step + 1} steps" if step else "answered")
                return reply.text
            messages.append(reply.as_message())
            if reasoning is not None and (reply.text or reply.reasoning):
                await self._send_thought(space, reasoning, reply.reasoning or reply.text)
            for call in reply.calls:
                await self._wait_while_paused(space)
                self.status.tool_calls += 1
                messages.append(
                    {"role": "tool", "tool_call_id": call.id, "content": await toolbox.use(call, reasoning)}
                )
        return f"I stopped after {limits.steps} steps without an end; tell me how to go on."

    async def _complete(
        self, space: JoinedSpace, toolbox: Toolbox, messages: list[Message], reasoning: Reasoning | None
    ) -> ModelReply:
        start = time.monotonic()
        stream = ReasoningStream(space, reasoning, self.settings.limits.stream_chars)
        try:
            reply = await self.model.complete(messages, toolbox.definitions(), stream.write)
        finally:
            await stream.end()
        status = self.status
        status.latency_ms = round((time.monotonic() - start) * 1000)
        status.prompt_tokens += reply.prompt_tokens
        status.completion_tokens += reply.completion_tokens
        return reply

    async def _send_thought(self, space: JoinedSpace, reasoning: Reasoning, text: str) -> None:
        await self._wait_while_paused(space)
        most = self.settings.limits.stream_chars
        with suppress(NotAllowed, Refused):
            await reasoning.thought(text if len(text) <= most else f"{text[:most]} …")

    async def _wait_while_paused(self, space: JoinedSpace) -> None:
        """MEW 3.9.1: a paused agent waits."""
        while space.paused is not None and space.close_reason is None:
            with suppress(MootError):
                await space.ready()

    async def _summarise(self, envelopes: list[Envelope]) -> str:
        try:
            reply = await self.model.complete(summary_prompt(envelopes), [])
        except ModelFailed as fault:
            # The room is needed in any case; the transcript says what is lost.
            log.warning("no summary", extra={"why": str(fault)})
            return f"({len(envelopes)} earlier messages were dropped without a summary)"
        return reply.text or f"({len(envelopes)} earlier messages were dropped)"


def _mentions(text: str, name: str) -> bool:
    """Whether a text mentions this name, as a whole word, with or without an @."""
    return re.search(rf"(?<![\w@.-])@?{re.escape(name)}(?![\w-])", text, re.IGNORECASE) is not None


def _drain(queue: asyncio.Queue[Envelope]) -> list[Envelope]:
    found = []
    while not queue.empty():
        found.append(queue.get_nowait())
    return found


async def serve_agent(
    url: str,
    space: str,
    token: str,
    model: ModelSettings,
    settings: AgentSettings,
    *,
    name: str | None = None,
) -> CloseReason:
    """Join a space as an agent and stay until it ends."""
    async with Model(model, settings.limits) as endpoint:
        agent = Agent(endpoint, settings)
        joining = connect(url, space, token, name=name, controls=agent.controls)
        async with joining as joined:
            log.info("joined", extra={"space": space, "participant": joined.me})
            return await agent.run(joined)
