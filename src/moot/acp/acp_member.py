"""An ACP agent as a member of a space: chats become prompts, and what it does is seen and decided here.

    chat for us → acknowledge → reasoning/start → session/prompt ⇄ updates, permissions → chat
    a rejection  → after the turn, its reason as the next prompt
    the agent ends → whoever asked is told; it is started again, its session restored where it can be

One turn runs at a time, and nothing is ever prompted twice: what the agent had done when it ended is not
known here. Updates and permission requests of another session than ours are refused.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from moot.acp.acp_controls import AcpControls
from moot.acp.acp_settings import AcpSettings
from moot.acp.agent_process import AgentProcess, AgentUnusable
from moot.acp.agent_profiles import profile_of
from moot.acp.asking_probe import UNVERIFIED, AskingProbe, ProbeResult
from moot.acp.json_rpc import INVALID_PARAMS, METHOD_NOT_FOUND, IncomingCall, PeerGone, RpcError
from moot.acp.permissions import CANCELLED, Permissions, Rejection
from moot.acp.prompt_text import blocks, introduction, message_text, rejection_text, resume_text
from moot.acp.session_file import OpenChat, SessionFile
from moot.acp.tool_calls import KINDS, ToolCall
from moot.acp.update_relay import Turn, UpdateRelay
from moot.agent.secret_filter import SecretFilter
from moot.errors import MootError, UsageError
from moot.participant import CloseReason, IncomingRequest, JoinedSpace
from moot.participant.conversation.chat import mentions
from moot.participant.serving.tools import RawResult
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.resilience.rate_limits import sliding_windows
from moot.resilience.restart_loop import keep_running

log = logging.getLogger(__name__)

_MAX_COUNTED_MEMBERS: Final = 10_000
_MAX_REMARKS: Final = 20
_MAX_SEEN_CHATS: Final = 10_000
_MAX_REJECTIONS: Final = 1_000
# How long an agent is not read when too much of it waits to be sent.
_PAUSE_SECONDS: Final = 0.2
# When text that belongs to no turn is sent, if nothing follows.
_IDLE_SECONDS: Final = 1.0
# Names under which agents have the command that compacts their context.
_COMPACT_COMMANDS: Final = ("compact", "compress")
_PLAN_MODE: Final = "plan"
_ENDINGS: Final = {
    "end_turn": "",
    "max_tokens": "it reached its longest answer",
    "max_turn_requests": "it made as many requests to its model as it may in one turn",
    "refusal": "the model refused",
    "cancelled": "the turn was cancelled",
}


@dataclass(frozen=True, slots=True)
class Ending:
    """How a prompt ended: the agent's reason, why we stopped it, or how the agent itself ended."""

    reason: str = ""
    stopped: str = ""
    gone: str = ""


class AcpMember:
    """One ACP agent in one space. `start` it, then `run` it in a space."""

    def __init__(self, settings: AcpSettings) -> None:
        self.settings = settings
        self.profile = profile_of(settings.argv)
        self.controls = AcpControls(self)
        self.file = SessionFile(settings.state_folder / "session.json")
        self.agent: AgentProcess | None = None
        self.session = ""
        self.probed = ProbeResult({})
        self.turns = 0
        # Updates and requests that named another session, or were no ACP.
        self.refused = 0
        self._probe: AskingProbe | None = None
        self._space: JoinedSpace | None = None
        self._relay: UpdateRelay | None = None
        self._permissions: Permissions | None = None
        # Set while the agent has a session.
        self._ready = asyncio.Event()
        self._is_restoring = False
        self._is_introduced = False
        self._closing = False
        # False while the agent that `start` has started runs.
        self._needs_start = False
        self._queue: asyncio.Queue[Envelope] = asyncio.Queue(settings.limits.max_queued_turns)
        self._rates = sliding_windows(
            settings.limits.max_turns_per_minute, 60.0, max_keys=_MAX_COUNTED_MEMBERS
        )
        self._told_to_wait: set[str] = set()
        self._prompting = asyncio.Lock()
        self._current: Envelope | None = None
        self._stop = asyncio.Event()
        self._stop_why = ""
        self._is_paused_turn = False
        self._paused_by = ""
        self._calls: dict[str, ToolCall] = {}
        self._commands: tuple[str, ...] = ()
        self._rejections: list[Rejection] = []
        self._rejection_ids: dict[str, None] = {}
        self._remarks: list[Envelope] = []
        self._refusals = 0
        # Chats that were handled, and when the last one was sent: for those that come while we are away.
        self._seen_chats: dict[str, None] = {}
        self._last_ts = ""

    # The agent's process

    async def start(self) -> None:
        """Start the agent and probe it; raises UsageError, AgentUnusable or PeerGone with what to do."""
        settings = self.settings
        await self._start_agent()
        if settings.probe:
            agent = self._agent()
            self._probe = AskingProbe(agent)
            try:
                self.probed = await self._probe.run()
            finally:
                self._probe = None
            if self.probed.acted and not settings.accept_unasked:
                raise UsageError(
                    f"{agent.title} {self.probed}. Start it in a mode in which it asks, or let it join all "
                    "the same with --accept-unasked"
                )
        await self._open_session()

    async def _start_agent(self) -> None:
        agent = AgentProcess(self.settings, self.profile, self._on_request, self._on_notification)
        self.agent = agent
        await agent.start()
        if self._relay is not None:
            self._relay.secrets = SecretFilter(agent.secrets())
        await agent.initialize()

    async def _open_session(self) -> None:
        """Restore the last session, or open a new one."""
        agent, folder, record = self._agent(), self.settings.folder, self.file.record
        is_same = record.session and record.folder == str(folder)
        self._is_restoring = True
        try:
            restored = bool(is_same) and await agent.restore_session(record.session, folder)
        finally:
            self._is_restoring = False
        if restored:
            self.session, self._is_introduced = record.session, True
        else:
            if is_same and self._relay is not None:
                self._relay.note("I was started again and do not remember what was said before.")
            await self._new_session()
        self._calls.clear()
        self._ready.set()

    async def _new_session(self) -> None:
        agent = self._agent()
        self.session, self._is_introduced = await agent.new_session(self.settings.folder), False
        self.file.set_session(self.session, str(self.settings.folder), agent.title)

    def _agent(self) -> AgentProcess:
        assert self.agent is not None  # noqa: S101  # `start` comes first
        return self.agent

    async def stop(self) -> None:
        """End the agent."""
        self._closing = True
        if self.agent is not None:
            await self.agent.stop()

    async def _run_agent(self) -> str:
        """One run of the agent, from its start, if it is not started, to its end; why it ended."""
        if self._needs_start:
            try:
                await self._start_agent()
                await self._open_session()
                if self._relay is not None:
                    self._relay.note("The agent runs again.")
            except (AgentUnusable, PeerGone, UsageError) as fault:
                log.warning("the agent cannot be started", extra={"why": str(fault)})
                await self._agent().stop()
                return str(fault)
        self._needs_start = True
        agent = self._agent()
        await agent.gone.wait()
        self._ready.clear()
        why = agent.end_reason
        log.warning("the agent ended", extra={"why": why, "stderr": agent.last_words()})
        if self._permissions is not None:
            self._permissions.close_all(why)
        await agent.stop()
        if self._relay is not None and not self._closing:
            self._relay.note(f"{why[:1].upper()}{why[1:]}. It is started again.")
        return why

    # In the space

    async def run(self, space: JoinedSpace) -> CloseReason:
        """Take part until the connection ends for good. Call this first, so that no chat is missed."""
        settings = self.settings
        self._space = space
        relay = self._relay = UpdateRelay(space, settings.limits)
        relay.secrets = SecretFilter(self._agent().secrets())
        self._permissions = Permissions(
            space, relay, self.profile, settings.folder, settings.limits, self._add_rejection
        )
        self._offer_tools(space)
        space.on("chat")(self._handle_chat)
        space.on("chat/cancel")(self._handle_chat_cancel)
        space.on("mcp/reject")(self._note_rejection)
        space.on_reconnected(self._catch_up)
        async with asyncio.TaskGroup() as group:
            work = [
                group.create_task(relay.run()),
                group.create_task(self._run_turns(space)),
                group.create_task(self._keep_agent()),
                group.create_task(self._settle_last_run(space)),
            ]
            try:
                return await space.stay()
            finally:
                self._closing = True
                for task in work:
                    task.cancel()

    async def _keep_agent(self) -> None:
        await keep_running(
            self._run_agent,
            self.settings.restart,
            should_restart=lambda _: not self._closing,
            on_delay=lambda why, seconds: log.info(
                "the agent is started again", extra={"why": why, "seconds": round(seconds, 1)}
            ),
        )

    def statement(self) -> str:
        """What people have to know of this agent before they rely on being asked."""
        agent = self._agent()
        lines = [f"I am {agent.title}, and work in {self.settings.folder}."]
        lines.append(f"Whether I ask: {self.asks}.")
        if self.profile.unasked:
            lines.append(f"Without asking, {self.profile.name}: {'; '.join(self.profile.unasked)}.")
        if self.settings.keep_home:
            lines.append("I use the home of whoever started me: what is allowed there is not asked.")
        lines.append(
            "What I ask for is a proposal here. An approval counts once. Nothing but the agent itself keeps "
            "it to what was approved."
        )
        return "\n".join(lines)

    @property
    def asks(self) -> str:
        """In one line, whether it asks."""
        if not self.settings.probe:
            return f"{UNVERIFIED} (it was not probed)"
        return str(self.probed)

    def _offer_tools(self, space: JoinedSpace) -> None:
        async def run(arguments: dict[str, Json]) -> RawResult:  # noqa: ARG001
            return RawResult()

        for kind in KINDS:
            space.tool(
                run,
                name=kind,
                description=f"What the agent calls {kind!r}, done by the agent itself when a proposal of its "
                "own is approved. It cannot be called otherwise.",
                input_schema=_INPUT_SCHEMA,
            )

        def can_run(method: str, _: Mapping[str, Json]) -> bool:
            """Of proposals of others, which could only come to nothing."""
            return method != "tools/call"

        async def answer(request: IncomingRequest) -> dict[str, Json] | None:
            if request.method == "tools/call" and self._permissions is not None:
                return await self._permissions.answer(request)
            return await space.offers.answer(request)

        space.server.use_handler(answer, can_run=can_run)

    async def _settle_last_run(self, space: JoinedSpace) -> None:
        """Tell what the last run has left: turns that were cut off, and proposals that nobody can use."""
        relay = self._relay
        assert relay is not None  # noqa: S101  # made by `run`
        relay.note(self.statement())
        for chat in self.file.take_open():
            text = (
                "I was stopped while I worked on this. How far it came is seen above; I have not repeated it."
                if chat.started
                else "I was stopped before I came to this. Ask again."
            )
            await relay.chat(text, Turn(chat_id=chat.id, sender=chat.sender))
        with suppress(MootError):
            for proposal in await space.resume_proposals(wait_for_others=True):
                is_ours = self._permissions is not None and self._permissions.knows(proposal.id)
                if proposal.state == "pending" and not is_ours:
                    await proposal.withdraw()

    def _add_rejection(self, rejection: Rejection) -> None:
        """Keep it for the next prompt. An agent that asks on and on is stopped."""
        limits = self.settings.limits
        self._refusals += 1
        if len(self._rejections) < limits.max_refusals:
            self._rejections.append(rejection)
        if self._refusals >= limits.max_refusals:
            self._stop_turn(f"{self._refusals} of its permissions came to nothing (max_refusals)")

    # Chats

    async def _catch_up(self) -> None:
        """Take in chats that came while the connection was lost, as far as the gateway still has them."""
        space = self._space
        if space is None or not self._last_ts:
            return
        with suppress(MootError, ValueError):
            since = datetime.fromisoformat(self._last_ts).timestamp() - space.limits.history_margin_seconds
            for envelope in await space.recall(since):
                if envelope.kind == "chat" and envelope.sender != space.me:
                    await self._handle_chat(envelope)

    def _note_rejection(self, envelope: Envelope) -> None:
        if len(self._rejection_ids) >= _MAX_REJECTIONS:
            del self._rejection_ids[next(iter(self._rejection_ids))]
        self._rejection_ids[envelope.id] = None

    async def _handle_chat(self, chat: Envelope) -> None:
        space, relay = self._space, self._relay
        if space is None or relay is None or chat.id in self._seen_chats:
            return
        self._last_ts = chat.ts
        self._seen_chats[chat.id] = None
        while len(self._seen_chats) > _MAX_SEEN_CHATS:
            del self._seen_chats[next(iter(self._seen_chats))]
        if not self._is_for_us(space, chat):
            return
        if any(id in self._rejection_ids or space.proposals.get(id) for id in chat.correlation_id):
            # About a decision: the agent is told with the decision, or with the next prompt.
            if len(self._remarks) < _MAX_REMARKS:
                self._remarks.append(chat)
            return
        turn, limits = Turn(chat_id=chat.id, sender=chat.sender), self.settings.limits
        if self._rates.take(chat.sender, time.monotonic()):
            # Once, since another agent would answer each time.
            if chat.sender not in self._told_to_wait:
                self._told_to_wait.add(chat.sender)
                text = f"I answer {limits.max_turns_per_minute} messages a minute of one member: write later."
                await relay.chat(text, turn)
            return
        self._told_to_wait.discard(chat.sender)
        if self._queue.full():
            await relay.chat("I have too much to do already: write again later.", turn)
            return
        try:
            self.file.add(OpenChat(chat.id, chat.sender))
        except UsageError as fault:
            # It could get lost: then it is not taken.
            await relay.chat(f"I cannot take this: {fault}.", turn)
            return
        self._queue.put_nowait(chat)
        with suppress(MootError):
            await space.chats.acknowledge(chat)
        if not self._ready.is_set():
            await relay.chat("The agent does not run at the moment. I pass this on when it is back.", turn)

    def _is_for_us(self, space: JoinedSpace, chat: Envelope) -> bool:
        text = chat.payload.get("text")
        if not isinstance(text, str) or not text.strip():
            return False
        if chat.to:
            return space.me in chat.to or space.name in chat.to
        return self.settings.answers == "all" or any(mentions(text, name) for name in (space.me, space.name))

    def _handle_chat_cancel(self, envelope: Envelope) -> None:
        """MEW 3.4.2: a cancelled chat needs no answer."""
        if self._current is not None and self._current.id in envelope.correlation_id:
            self._stop_turn(f"{envelope.sender} cancelled the message")
        waiting = [self._queue.get_nowait() for _ in range(self._queue.qsize())]
        for chat in waiting:
            if chat.id in envelope.correlation_id:
                self.file.remove(chat.id)
            else:
                self._queue.put_nowait(chat)

    # Turns

    def _stop_turn(self, why: str) -> None:
        if self._prompting.locked():
            self._stop_why = self._stop_why or why
            self._stop.set()

    async def _run_turns(self, space: JoinedSpace) -> None:
        while True:
            chat = await self._queue.get()
            await self._wait_until_able(space)
            async with self._prompting:
                self._current = chat
                try:
                    await self._run_turn(space, chat)
                finally:
                    self._current = None
            self.file.remove(chat.id)

    async def _wait_until_able(self, space: JoinedSpace) -> None:
        while not self._ready.is_set() or space.paused is not None:
            await self._ready.wait()
            if space.paused is not None:
                with suppress(MootError):
                    await space.ready()

    async def _run_turn(self, space: JoinedSpace, chat: Envelope) -> None:
        relay = self._relay
        assert relay is not None  # noqa: S101  # made by `run`
        self.turns += 1
        self._refusals = 0
        self._stop.clear()
        self._stop_why, self._is_paused_turn = "", False
        turn = Turn(chat_id=chat.id, sender=chat.sender)
        self.file.add(OpenChat(chat.id, chat.sender, started=True))
        async with AsyncExitStack() as stack:
            if space.may("reasoning/start", {"message": ""}):
                about = f"{chat.sender} asks: {str(chat.payload['text'])[:200]}"
                with suppress(MootError):
                    turn.reasoning = await stack.enter_async_context(
                        space.reasoning(about, about=chat.id, stop=False)
                    )
            relay.seal()
            relay.turn = turn
            try:
                ending = await self._prompt_to_the_end(space, turn, chat)
                await relay.flush()
            finally:
                relay.turn = Turn()
        await self._tell_ending(relay, turn, ending)

    async def _prompt_to_the_end(self, space: JoinedSpace, turn: Turn, chat: Envelope) -> Ending:
        limits = self.settings.limits
        texts = [*self._opening(space), message_text(chat.sender, str(chat.payload["text"]))]
        told = 0
        while True:
            ending = await self._prompt(turn, texts)
            if ending.stopped and self._is_paused_turn and not ending.gone:
                await self._wait_until_able(space)
                self._stop.clear()
                self._stop_why, self._is_paused_turn = "", False
                texts = [resume_text(self._paused_by)]
                continue
            # A turn that we stopped needs no prompt; its reasons come with the next one.
            if ending.stopped or ending.gone or not self._rejections or told >= limits.max_rejections:
                return ending
            told += len(self._rejections)
            texts = self._take_rejections()

    def _opening(self, space: JoinedSpace) -> list[str]:
        """What comes before a message: who we are, once, and what was decided or said since."""
        texts = []
        if not self._is_introduced:
            self._is_introduced = True
            texts.append(introduction(space.me, space.space, str(self.settings.folder)))
        return [*texts, *self._take_rejections()]

    def _take_rejections(self) -> list[str]:
        taken = [
            rejection_text(each.what, each.by, each.reason, each.explanation) for each in self._rejections
        ]
        self._rejections.clear()
        remarks, self._remarks = self._remarks, []
        for chat in remarks:
            text = str(chat.payload["text"])
            if not any(text in each for each in taken):
                taken.append(message_text(chat.sender, text))
        return taken

    async def _prompt(self, turn: Turn, texts: list[str]) -> Ending:
        """One prompt, until the agent has ended it, was stopped, or has ended itself."""
        agent, permissions, limits = self._agent(), self._permissions, self.settings.limits
        assert permissions is not None  # noqa: S101  # made by `run`
        request = asyncio.ensure_future(
            agent.peer.request("session/prompt", {"sessionId": self.session, "prompt": blocks(*texts)})
        )
        waits = [asyncio.ensure_future(self._stop.wait())]
        if turn.reasoning is not None:
            waits.append(asyncio.ensure_future(turn.reasoning.cancelled.wait()))
        try:
            await asyncio.wait(
                [request, *waits], timeout=limits.turn_seconds, return_when=asyncio.FIRST_COMPLETED
            )
            stopped = ""
            if not request.done():
                stopped = self._stop_why or (
                    "its reasoning was cancelled"
                    if turn.reasoning is not None and turn.reasoning.cancelled.is_set()
                    else f"it took longer than {limits.turn_seconds:g} s (turn_seconds)"
                )
                permissions.close_all(stopped)
                await self._cancel_prompt(agent, request)
            answer = await request
            reason = answer.get("stopReason")
            ending = Ending(reason=reason if isinstance(reason, str) else "", stopped=stopped)
        except RpcError as fault:
            ending = Ending(reason=f"its error: {fault.message}", stopped=self._stop_why)
        except PeerGone as fault:
            ending = Ending(gone=agent.end_reason or str(fault), stopped=self._stop_why)
        finally:
            request.cancel()
            for wait in waits:
                wait.cancel()
            permissions.close_all(self._stop_why or "the turn has ended")
            if self._relay is not None:
                self._relay.seal()
        return ending

    async def _cancel_prompt(self, agent: AgentProcess, request: asyncio.Future[Any]) -> None:
        with suppress(PeerGone):
            agent.peer.notify("session/cancel", {"sessionId": self.session})
        seconds = self.settings.limits.cancel_seconds
        await asyncio.wait([request], timeout=seconds)
        if not request.done():
            # It may go on acting: then it must end.
            agent.abandon(f"the agent did not stop within {seconds:g} s and was ended")

    async def _tell_ending(self, relay: UpdateRelay, turn: Turn, ending: Ending) -> None:
        """However a turn ends, whoever asked is told."""
        if ending.gone:
            text = (
                f"{ending.gone[:1].upper()}{ending.gone[1:]} while it worked on this. What it had done is "
                "seen above as far as it told; I do not repeat it. Look, then ask again."
            )
        elif ending.stopped:
            text = f"I stopped: {ending.stopped}."
        else:
            why = _ENDINGS.get(ending.reason, f"it ended with {ending.reason[:500] or 'no reason'}")
            if not why and turn.messages:
                return
            text = f"I stopped: {why}." if why else "The agent ended its turn without a word."
        await relay.chat(relay.clean(text), turn)

    # What the agent sends

    def _on_request(self, call: IncomingCall) -> None:
        if self._probe is not None and self._probe.handle_request(call):
            return
        try:
            if call.method != "session/request_permission":
                # File access and terminals are not offered; other requests are extensions.
                call.fail(METHOD_NOT_FOUND, f"{call.method[:100]} is not offered here")
                return
            tool_call = call.params.get("toolCall")
            id = tool_call.get("toolCallId") if isinstance(tool_call, dict) else None
            if not isinstance(tool_call, dict) or not isinstance(id, str):
                call.fail(INVALID_PARAMS, "a permission request needs toolCall.toolCallId")
            elif call.params.get("sessionId") != self.session or self._permissions is None:
                self.refused += 1
                log.warning("a permission request for another session")
                call.fail(INVALID_PARAMS, "there is no such session")
            elif self._stop.is_set():
                call.respond(CANCELLED)
            else:
                self._permissions.ask(call, self._call(id, tool_call))
        except PeerGone as gone:
            log.info("not answered", extra={"why": str(gone)})

    def _on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        update = params.get("update")
        if method != "session/update" or not isinstance(update, dict):
            return
        if update.get("sessionUpdate") == "available_commands_update":
            # It may come before the session has its id here.
            self._commands = _names_in(update.get("availableCommands"))
        if self._probe is not None or self._is_restoring:
            # The probe sees what it needs; a restored session repeats what was shown before.
            return
        if params.get("sessionId") != self.session or self._relay is None:
            self.refused += 1
            return
        self._handle_update(self._relay, update)

    def _handle_update(self, relay: UpdateRelay, update: Mapping[str, Any]) -> None:
        kind, id = update.get("sessionUpdate"), update.get("toolCallId")
        if kind in ("tool_call", "tool_call_update") and isinstance(id, str):
            self._call(id, update)
        elif kind == "current_mode_update":
            self._handle_mode(relay, update.get("currentModeId"))
        else:
            relay.add_update(update)
        self._hold_limits(relay)

    def _call(self, id: str, update: Mapping[str, Any]) -> ToolCall:
        """The tool call of this id with the update in it; it is shown if that is news."""
        call = self._calls.get(id)
        if call is None:
            while len(self._calls) > self.settings.limits.max_tool_calls:
                del self._calls[next(iter(self._calls))]
            call = self._calls[id] = ToolCall(id)
            if self._relay is not None:
                self._relay.turn.calls += 1
        if call.merge(update) and self._relay is not None and self._permissions is not None:
            self._relay.add_act(call)
            self._permissions.handle_update(call)
        return call

    def _hold_limits(self, relay: UpdateRelay) -> None:
        limits, turn, agent = self.settings.limits, relay.turn, self._agent()
        if relay.waiting > limits.max_waiting_updates and agent.child is not None:
            agent.child.pause_reading(_PAUSE_SECONDS)
        why = ""
        if turn.chars > limits.max_turn_chars:
            why = f"more than {limits.max_turn_chars} characters in one turn (max_turn_chars)"
        elif turn.calls > limits.max_tool_calls:
            why = f"more than {limits.max_tool_calls} tool calls in one turn (max_tool_calls)"
        if turn.chat_id:
            if why:
                self._stop_turn(why)
        elif why:
            agent.abandon(f"the agent sent {why} without being asked, and was ended")
        else:
            asyncio.get_running_loop().call_later(_IDLE_SECONDS, relay.seal)

    def _handle_mode(self, relay: UpdateRelay, mode: Any) -> None:
        """The agent has changed its mode. One in which it does not ask is not accepted."""
        wanted = self.profile.mode
        relay.add_update({"sessionUpdate": "notice", "mode": str(mode)[:100]})
        if wanted is None or mode in (wanted, _PLAN_MODE):
            return
        relay.note(f"The agent changed to its mode {str(mode)[:100]!r}. I set it back to {wanted!r}.")
        self._stop_turn(f"it changed to the mode {str(mode)[:100]!r}, in which it may act without asking")
        if self._space is not None:
            self._space.spawn(self._restore_mode(self._agent()))

    async def _restore_mode(self, agent: AgentProcess) -> None:
        try:
            await agent.set_mode(self.session)
        except (RpcError, PeerGone) as fault:
            agent.abandon(f"the agent did not go back to the mode in which it asks: {fault}")

    # Controls

    def metrics(self) -> Mapping[str, Json]:
        agent, permissions = self.agent, self._permissions
        return {
            "agent": "" if agent is None else agent.title,
            "running": self._ready.is_set(),
            "asks": self.asks,
            "turns": self.turns,
            "turns_waiting": self._queue.qsize(),
            "permissions_open": 0 if permissions is None else permissions.open,
            "refused_messages": self.refused,
        }

    async def pause(self, by: str) -> None:
        self._paused_by = by
        if self._current is not None:
            self._is_paused_turn = True
            self._stop_turn(f"paused by {by}")

    def resume(self) -> None:
        """The turns go on by themselves: they wait for the end of the pause."""

    async def clear(self, by: str) -> None:
        for _ in range(self._queue.qsize()):
            self.file.remove(self._queue.get_nowait().id)
        self._stop_turn(f"cleared by {by}")
        async with self._prompting:
            if self._ready.is_set():
                await self._new_session()
                self._calls.clear()
                self._rejections.clear()

    async def compact(self) -> bool:
        name = next((each for each in _COMPACT_COMMANDS if each in self._commands), None)
        if name is None or not self._ready.is_set():
            return False
        async with self._prompting:
            try:
                await self._agent().peer.request(
                    "session/prompt",
                    {"sessionId": self.session, "prompt": blocks(f"/{name}")},
                    self.settings.limits.start_seconds,
                )
            except (RpcError, PeerGone) as fault:
                raise MootError(f"the agent did not compact: {fault}") from None
        return True

    def restart(self, by: str) -> None:
        self._stop_turn(f"restarted by {by}")
        self._agent().abandon(f"the agent was restarted by {by}")

    async def shut_down(self, by: str) -> None:
        self._closing = True
        self._stop_turn(f"shut down by {by}")
        agent = self._agent()
        with suppress(PeerGone):
            agent.peer.notify("session/cancel", {"sessionId": self.session})
        await agent.stop()


_INPUT_SCHEMA: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "input": {"description": "the input of the agent's tool, as the agent told it"},
        "changes": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "path": {"type": "string"},
                    "old_text": {"type": ["string", "null"]},
                    "new_text": {"type": "string"},
                },
            },
        },
        "title": {"type": "string"},
        "paths": {"type": "array", "items": {"type": "string"}},
        "text": {"type": "string"},
        "outside_folder": {"type": "array", "items": {"type": "string"}},
        "missing": {"type": "array", "items": {"type": "string"}},
    },
}


def _names_in(commands: Any) -> tuple[str, ...]:
    given = commands if isinstance(commands, list) else []
    return tuple(
        name.lstrip("/")
        for each in given[:1_000]
        if isinstance(each, dict) and isinstance(name := each.get("name"), str)
    )
