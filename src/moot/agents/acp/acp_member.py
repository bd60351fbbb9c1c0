"""An ACP agent as a member of a space: chats become prompts, and what it does is seen and decided here.

    chat for us → acknowledge → reasoning/start → session/prompt ⇄ updates, permissions → chat
    a rejection  → after the turn, its reason as the next prompt
    the agent ends → whoever asked is told; it is started again, its session restored where it can be

`SupervisedAgent` has the process, `TurnRunner` the prompts, and this is between them and the space: what the
agent sends is checked here. Updates and permission requests of another session than ours are refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from moot.agents.acp.acp_controls import AcpControls
from moot.agents.acp.acp_settings import AcpSettings
from moot.agents.acp.agent_process import AgentProcess
from moot.agents.acp.agent_profiles import AgentProfile, profile_of
from moot.agents.acp.folder_settings import check_folder_settings
from moot.agents.acp.json_rpc import IncomingCall, PeerError, PeerGone
from moot.agents.acp.open_permission import CANCELLED
from moot.agents.acp.session_file import SessionFile
from moot.agents.acp.settings_files import shorten_list
from moot.agents.acp.supervised_agent import AgentListener, SupervisedAgent
from moot.agents.acp.tool_calls import ACTING_KINDS, KINDS, AgentToolCall
from moot.agents.acp.turn_runner import TurnRunner
from moot.agents.acp.update_relay import Turn, UpdateRelay
from moot.agents.secret_filter import SecretFilter
from moot.errors import MootError
from moot.participant import CloseReason, IncomingRequest, JoinedSpace
from moot.participant.programs.member_program import run_member
from moot.participant.serving.tools import RawResult
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INVALID_PARAMS, METHOD_NOT_FOUND

# How often it is looked whether settings of the agent in its folder have changed; also after each call.
SETTINGS_CHECK_SECONDS: Final = 2.0
# Tool calls, and characters of messages and thoughts, of one turn; beyond that it is cancelled.
MAX_TOOL_CALLS: Final = 1_000
MAX_TURN_CHARS: Final = 2_000_000
# Updates of the agent that wait to be sent; then it is not read until there is room.
MAX_WAITING_UPDATES: Final = 1_000

log = logging.getLogger(__name__)

# How long an agent is not read when too much of it waits to be sent.
_PAUSE_SECONDS: Final = 0.2
# When text that belongs to no turn is sent, if nothing follows.
_IDLE_SECONDS: Final = 1.0
_PLAN_MODE: Final = "plan"


class AcpMember:
    """One ACP agent in one space. `start` it, then `run` it in a space."""

    def __init__(self, settings: AcpSettings, profile: AgentProfile | None = None) -> None:
        """`profile` is that of the command in `settings`, unless another one is given."""
        self.settings = settings
        self.controls = AcpControls(self)
        self.file = SessionFile(settings.state_folder / "session.json")
        self.agent = SupervisedAgent(
            settings,
            profile_of(settings.argv) if profile is None else profile,
            self.file,
            self._on_request,
            self._on_notification,
        )
        # Updates and requests that named another session, or were no ACP.
        self.refused = 0
        # While it is in a space.
        self.turns: TurnRunner | None = None
        self._calls: LatestDict[str, AgentToolCall] = LatestDict(MAX_TOOL_CALLS)
        # Set when a call is over: it may have changed settings.
        self._call_over = asyncio.Event()
        self._commands: tuple[str, ...] = ()

    async def start(self) -> None:
        """Start the agent; raises AgentUnusable or PeerGone."""
        await self.agent.start()

    async def stop(self) -> None:
        await self.agent.stop()

    # In the space

    async def run(self, space: JoinedSpace) -> CloseReason:
        """Take part until the connection ends for good. Call this first, so that no chat is missed."""
        agent, relay = self.agent, UpdateRelay(space)
        relay.secrets = SecretFilter(agent.process.secrets())
        turns = self.turns = TurnRunner(space, relay, agent, self.settings, self.file)

        def replace_secrets(secrets: list[str]) -> None:
            relay.secrets = SecretFilter(secrets)

        agent.listener = AgentListener(
            on_start=replace_secrets,
            on_session=self._calls.clear,
            on_end=turns.permissions.close_all,
            on_note=relay.note,
        )
        self._offer_tools(turns)
        turns.intake.start()
        space.on("chat/cancel")(turns.handle_cancel)
        space.on("mcp/reject")(turns.remarks.note_rejection)
        async with asyncio.TaskGroup() as group:
            work = [
                group.create_task(relay.run()),
                group.create_task(turns.run()),
                group.create_task(agent.keep_running()),
                group.create_task(self._settle_last_run(turns)),
                group.create_task(self._watch_folder(turns)),
            ]
            try:
                return await space.stay()
            finally:
                agent.is_closing = True
                for task in work:
                    task.cancel()

    def statement(self) -> str:
        """What people have to know of this agent before they rely on being asked."""
        profile = self.agent.profile
        lines = [f"I am {self.agent.process.title}, and work in {self.settings.folder}."]
        lines.append(f"Whether I ask: {self.agent.asks}.")
        if profile.unasked:
            lines.append(f"Without asking, {profile.name}: {'; '.join(profile.unasked)}.")
        if settings := self.agent.folder.statement():
            lines.append(settings)
        if self.settings.home == "kept":
            lines.append("I use the home of whoever started me: what is allowed there is not asked.")
        lines.append(
            "What I ask for is a proposal here. An approval counts once. Nothing but the agent itself keeps "
            "it to what was approved."
        )
        me = "NAME" if self.turns is None else self.turns.space.me
        lines.append(
            f"`moot member grant {me} mcp/request:tools/call:edit` lets me edit inside this folder without "
            "asking. No grant covers what is outside, settings of an agent, or what I do not tell in full."
        )
        return "\n".join(lines)

    def _offer_tools(self, turns: TurnRunner) -> None:
        space = turns.space

        async def run(arguments: dict[str, Json]) -> RawResult:  # noqa: ARG001
            return RawResult()

        for kind in KINDS:
            space.tool(
                run,
                name=kind,
                description=f"What the agent calls {kind!r}, done by the agent itself when a proposal of its "
                "own is approved. It cannot be called otherwise. A grant of it to the agent covers what is "
                f"inside of {self.settings.folder}, but for settings of agents, and nothing outside.",
                input_schema=_INPUT_SCHEMA,
            )

        def can_run(method: str, _: Mapping[str, Json]) -> bool:
            """Of proposals of others, which could only come to nothing."""
            return method != "tools/call"

        async def answer(request: IncomingRequest) -> dict[str, Json] | None:
            if request.method == "tools/call":
                return await turns.permissions.answer(request)
            return await space.offers.answer(request)

        space.server.use_handler(answer, can_run=can_run)

    async def _settle_last_run(self, turns: TurnRunner) -> None:
        """Tell what the last run has left: turns that were cut off, and proposals that nobody can use."""
        relay = turns.relay
        relay.note(self.statement())
        for chat in self.file.take_open():
            text = (
                "I was stopped while I worked on this. How far it came is seen above; I have not repeated it."
                if chat.started
                else "I was stopped before I came to this. Ask again."
            )
            await relay.chat(text, Turn(chat_id=chat.id, sender=chat.sender))
        with suppress(MootError):
            for proposal in await turns.space.resume_proposals(wait_for_others=True):
                if proposal.state == "pending" and not turns.permissions.knows(proposal.id):
                    await proposal.withdraw()

    # What the agent sends

    def _on_request(self, call: IncomingCall) -> None:
        if self.agent.probe is not None and self.agent.probe.handle_request(call):
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
            elif call.params.get("sessionId") != self.agent.session or self.turns is None:
                self.refused += 1
                log.warning("a permission request for another session")
                call.fail(INVALID_PARAMS, "there is no such session")
            elif self.turns.is_stopping:
                call.respond(CANCELLED)
            else:
                self.turns.last_heard = asyncio.get_running_loop().time()
                # What it asks for now is not a change of what it asked for before under this id.
                asked = self._merge_call(self.turns, id, tool_call, is_asking=True)
                self.turns.permissions.ask(call, asked)
        except PeerGone as gone:
            log.info("not answered", extra={"why": str(gone)})

    def _on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        update = params.get("update")
        if method != "session/update" or not isinstance(update, dict):
            return
        if update.get("sessionUpdate") == "available_commands_update":
            # It may come before the session has its id here.
            self._commands = _names_in(update.get("availableCommands"))
        if self.agent.probe is not None or self.agent.is_restoring:
            # The probe sees what it needs; a restored session repeats what was shown before.
            return
        if params.get("sessionId") != self.agent.session or self.turns is None:
            self.refused += 1
            return
        self.turns.last_heard = asyncio.get_running_loop().time()
        self._handle_update(self.turns, update)

    def _handle_update(self, turns: TurnRunner, update: Mapping[str, Any]) -> None:
        kind, id = update.get("sessionUpdate"), update.get("toolCallId")
        if kind in ("tool_call", "tool_call_update") and isinstance(id, str):
            self._merge_call(turns, id, update)
        elif kind == "current_mode_update":
            self._handle_mode(turns, update.get("currentModeId"))
        else:
            turns.relay.add_update(update)
        self._hold_limits(turns)

    def _merge_call(
        self, turns: TurnRunner, id: str, update: Mapping[str, Any], *, is_asking: bool = False
    ) -> AgentToolCall:
        """The tool call of this id with the update in it; it is shown if that is news."""
        call = self._calls.get(id)
        if call is None:
            call = self._calls[id] = AgentToolCall(id)
            turns.relay.turn.calls += 1
        if call.merge(update):
            turns.relay.add_act(call)
            if not is_asking:
                self._handle_call(turns, call)
        return call

    def _handle_call(self, turns: TurnRunner, call: AgentToolCall) -> None:
        turns.permissions.handle_update(call)
        if call.is_over:
            self._call_over.set()
        if call.status == "completed" and call.kind in ACTING_KINDS:
            what = call.describe()
            if not call.was_asked or call.done_as not in ("", what):
                self.agent.unasked_acts += 1
                turns.relay.note_unasked(call)
            call.was_asked, call.done_as = True, what

    async def _watch_folder(self, turns: TurnRunner) -> None:
        """Settings that appear while the agent runs may take effect at once."""
        folder = self.agent.folder
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(SETTINGS_CHECK_SECONDS):
                    await self._call_over.wait()
            self._call_over.clear()
            if not self.agent.ready.is_set():
                # It is looked at when it starts.
                continue
            if changed := await asyncio.to_thread(folder.take_changes):
                self._handle_settings(turns, shorten_list(changed))

    def _handle_settings(self, turns: TurnRunner, changed: str) -> None:
        what = f"settings of the agent in its folder have changed while it runs: {changed}"
        if self.settings.trust_folder:
            turns.relay.note(f"WARNING: {what}. They count, and may allow things without asking.")
        elif self.agent.folder.leaves_out:
            turns.relay.note(f"To know: {what}. They are not used.")
        elif self.agent.folder.found:
            turns.relay.note(f"WARNING: {what}. They may allow things without asking, so I end it.")
            turns.stop(what)
            self.agent.process.abandon(f"the agent was ended: {what}")

    def _hold_limits(self, turns: TurnRunner) -> None:
        relay, agent = turns.relay, self.agent.process
        turn = relay.turn
        if relay.waiting > MAX_WAITING_UPDATES and agent.child is not None:
            agent.child.pause_reading(_PAUSE_SECONDS)
        why = ""
        if turn.chars > MAX_TURN_CHARS:
            why = f"more than {MAX_TURN_CHARS} characters in one turn"
        elif turn.calls > MAX_TOOL_CALLS:
            why = f"more than {MAX_TOOL_CALLS} tool calls in one turn"
        if turn.chat_id:
            if why:
                turns.stop(why)
        elif why:
            agent.abandon(f"the agent sent {why} without being asked, and was ended")
        else:
            asyncio.get_running_loop().call_later(_IDLE_SECONDS, relay.seal)

    def _handle_mode(self, turns: TurnRunner, mode: Any) -> None:
        """The agent has changed its mode. One in which it does not ask is not accepted."""
        wanted = self.agent.profile.mode
        turns.relay.add_update({"sessionUpdate": "notice", "mode": str(mode)[:100]})
        if wanted is None or mode in (wanted, _PLAN_MODE):
            return
        turns.relay.note(f"The agent changed to its mode {str(mode)[:100]!r}. I set it back to {wanted!r}.")
        turns.stop(f"it changed to the mode {str(mode)[:100]!r}, in which it may act without asking")
        turns.space.spawn(self._restore_mode(self.agent.process))

    async def _restore_mode(self, agent: AgentProcess) -> None:
        try:
            await agent.set_mode(self.agent.session)
        except (PeerError, PeerGone) as fault:
            agent.abandon(f"the agent did not go back to the mode in which it asks: {fault}")

    # Controls

    def metrics(self) -> Mapping[str, Json]:
        agent, turns = self.agent, self.turns
        return {
            "agent": agent.process.title,
            "running": agent.ready.is_set(),
            "asks": agent.asks,
            "unasked_acts": agent.unasked_acts,
            "folder_settings": shorten_list(agent.folder.found),
            "turns": 0 if turns is None else turns.turns,
            "turns_waiting": 0 if turns is None else turns.queue.waiting,
            "permissions_open": 0 if turns is None else turns.permissions.open,
            "refused_messages": self.refused,
        }

    def pause(self, by: str) -> None:
        """No prompt until the pause is over; then the turns go on by themselves."""
        if self.turns is not None:
            self.turns.pause(by)

    async def clear(self, by: str) -> None:
        if self.turns is not None:
            await self.turns.clear(by)

    async def compact(self) -> bool:
        return self.turns is not None and await self.turns.compact(self._commands)

    def restart(self, by: str) -> None:
        self._stop_turn(f"restarted by {by}")
        self.agent.process.abandon(f"the agent was restarted by {by}")

    async def shut_down(self, by: str) -> None:
        self.agent.is_closing = True
        self._stop_turn(f"shut down by {by}")
        process = self.agent.process
        with suppress(PeerGone):
            process.peer.notify("session/cancel", {"sessionId": self.agent.session})
        await process.stop()

    def _stop_turn(self, why: str) -> None:
        if self.turns is not None:
            self.turns.stop(why)


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


async def serve_acp(
    settings: AcpSettings, *, on_joined: Callable[[AcpMember, str], None] | None = None
) -> CloseReason:
    """Start an agent, join a space with it and stay until that ends.

    Raises UsageError, AgentUnusable or AgentStartFailed if the agent cannot be used, NotAdmitted or
    Unreachable if the space cannot be joined. The agent ends with this, whatever happens.
    """
    check_folder_settings(settings)
    return await run_member(lambda: AcpMember(settings), settings, on_joined=on_joined)
