"""A space in an ACP editor: the space is the agent, and the person at the editor is a member of it.

A prompt is a chat to the member that was chosen, or to all. It ends when that was answered and nobody reasons
about it any more. Proposals that the person may decide come as permission requests; a decision is made with
the person's own rights, over their own connection. A request that others have decided first is taken back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any, Final

from moot import __version__
from moot.agents.acp import editor_comments
from moot.agents.acp import editor_view as view
from moot.agents.acp.json_rpc import IncomingCall, JsonRpcPeer, PeerError, PeerGone
from moot.errors import MootError, VoteCounted
from moot.operations.again import again_offer, payload_of, remember_call
from moot.participant import JoinedSpace, SeenProposal
from moot.participant.connection.envelope_writer import new_id
from moot.protocol.envelope import Envelope
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json
from moot.protocol.origin_report import AgainOffer
from moot.protocol.rpc_codes import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from moot.resilience.task_set import TaskSet, end_tasks, wait_for_any

log = logging.getLogger(__name__)

PROTOCOL_VERSION: Final = 1
EVERYBODY: Final = "everybody"
# How long a prompt waits for a first sign (an acknowledgement, reasoning, an answer), and for an answer.
SIGN_SECONDS: Final = 60.0
ANSWER_SECONDS: Final = 3_600.0
# Permission requests that an editor shows at once; others wait.
MAX_REQUESTS: Final = 8
# Tool calls whose end is awaited. Of more than that, the oldest stay open in the editor.
MAX_OPEN_CALLS: Final = 1_000
# An agent may end its reasoning a moment before its answer.
_SETTLE_SECONDS: Final = 0.3


@dataclass(slots=True, eq=False)
class Prompt:
    """A prompt that is under way."""

    chat_id: str
    is_answered: bool = False
    has_sign: bool = False
    is_cancelled: bool = False
    # Reasoning that began about it and has not ended.
    reasoning: set[str] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class EditorServer:
    """The agent that an editor sees. `feed` takes the editor's lines, `write` gets ours."""

    def __init__(
        self,
        space: JoinedSpace,
        write: Callable[[bytes], None],
        *,
        to: str = "",
        sign_seconds: float = SIGN_SECONDS,
    ) -> None:
        self._space = space
        self._to = to
        self._sign_seconds = sign_seconds
        self.peer = JsonRpcPeer(write, self._handle_request, self._handle_notification)
        # Session → to whom its prompts go. The last one shows what happens.
        self._sessions: dict[str, str] = {}
        self._session = ""
        self._prompts: dict[str, Prompt] = {}
        # In the order in which the editor was asked.
        self._asked: dict[str, None] = {}
        # Proposals and requests that the session shows as tool calls → the id of the tool call.
        self._calls: LatestDict[str, str] = LatestDict(MAX_OPEN_CALLS)
        self._slots = asyncio.Semaphore(MAX_REQUESTS)
        self._tasks = TaskSet("editor")

    async def start(self) -> None:
        """Follow the space. Call it right after joining."""
        self._space.on("*")(self._handle_envelope)
        self._space.on_proposal(self._handle_proposal)
        self._space.on_reconnected(self._ask_about_open)

    async def close(self) -> None:
        self.peer.end("the editor has gone")
        await self._tasks.close()

    # What the editor asks

    def _handle_request(self, call: IncomingCall) -> None:
        self._tasks.start(self._answer_call(call))

    async def _answer_call(self, call: IncomingCall) -> None:
        try:
            call.respond(await self._result_of(call))
        except PeerError as fault:
            call.fail(fault.code, fault.message)
        except PeerGone:
            return
        except MootError as fault:
            # Such as no right to chat: the person at the editor is told why.
            with suppress(PeerGone):
                call.fail(INTERNAL_ERROR, str(fault))

    async def _result_of(self, call: IncomingCall) -> dict[str, Json]:
        params = call.params
        match call.method:
            case "initialize":
                return {
                    "protocolVersion": PROTOCOL_VERSION,
                    "agentCapabilities": {
                        "loadSession": False,
                        "promptCapabilities": {"image": False, "audio": False, "embeddedContext": True},
                    },
                    "agentInfo": {"name": "moot", "title": self._title(), "version": __version__},
                    "authMethods": [],
                }
            case "authenticate":
                return {}
            case "session/new":
                return self._open_session()
            case "session/set_mode":
                session, to = self._session_of(params), params.get("modeId")
                if to != EVERYBODY and to not in self._space.roster:
                    raise PeerError(INVALID_PARAMS, f"{str(to)[:100]} is not in the space")
                self._sessions[session] = str(to)
                return {}
            case "session/prompt":
                return {"stopReason": await self._prompt(self._session_of(params), params.get("prompt"))}
        raise PeerError(METHOD_NOT_FOUND, f"{call.method[:100]} is not offered here")

    def _title(self) -> str:
        return f"Moot: {self._space.space or 'space'}"

    def _session_of(self, params: Any) -> str:
        session = params.get("sessionId")
        if not isinstance(session, str) or session not in self._sessions:
            raise PeerError(INVALID_PARAMS, "there is no such session")
        return session

    def _open_session(self) -> dict[str, Json]:
        session = f"moot-{token_hex(8)}"
        roster = self._space.roster
        to = self._to if self._to in roster else EVERYBODY
        self._sessions[session] = to
        self._session = session
        self._calls.clear()
        members = sorted(name for name in roster if name != self._space.me)
        modes: list[Json] = [{"id": EVERYBODY, "name": "To everybody"}]
        modes += [{"id": name, "name": f"To {name}"} for name in members]
        # After the answer: before it, the editor does not know the session.
        self._tasks.start(self._begin_session())
        return {"sessionId": session, "modes": {"currentModeId": to, "availableModes": modes}}

    def _handle_notification(self, method: str, params: Any) -> None:
        if method == "session/cancel":
            # Not at once: a prompt that came just before is known after the first step of its task.
            asyncio.get_running_loop().call_soon(self._cancel_prompt, str(params.get("sessionId")))

    def _cancel_prompt(self, session: str) -> None:
        prompt = self._prompts.get(session)
        if prompt is not None:
            prompt.is_cancelled = True
            prompt.changed.set()

    # Prompts

    async def _prompt(self, session: str, given: Any) -> str:
        text = view.prompt_text(given)
        if not text.strip():
            raise PeerError(INVALID_PARAMS, "the prompt has no text")
        if (said := editor_comments.comment_in(text)) is not None:
            self._show(view.note(await editor_comments.comment(self._space, self._asked, said)))
            return "end_turn"
        if session in self._prompts:
            raise PeerError(INVALID_PARAMS, "a prompt of this session is under way")
        to = self._sessions[session]
        self._session = session
        if to != EVERYBODY and to not in self._space.roster:
            self._show(view.note(f"{to} is not in the space. Choose somebody else, or everybody."))
            return "end_turn"
        # Its id is known before it is sent: an answer may be faster than its echo.
        prompt = self._prompts[session] = Prompt(new_id())
        try:
            await self._space.send(
                "chat",
                {"text": text},
                to=() if to == EVERYBODY else to,
                id=prompt.chat_id,
                confirm=True,
            )
            return await self._wait_for_answer(prompt)
        finally:
            del self._prompts[session]

    async def _wait_for_answer(self, prompt: Prompt) -> str:
        loop = asyncio.get_running_loop()
        start = loop.time()
        while True:
            if prompt.is_cancelled:
                with suppress(MootError):
                    await self._space.chats.cancel(prompt.chat_id)
                return "cancelled"
            if prompt.is_answered and not prompt.reasoning:
                return "end_turn"
            seconds = ANSWER_SECONDS if prompt.has_sign or prompt.is_answered else self._sign_seconds
            left = start + seconds - loop.time()
            if left <= 0:
                self._show(view.note("Nobody has answered yet. What comes later is shown here."))
                return "end_turn"
            prompt.changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await prompt.changed.wait()
            if prompt.is_answered and not prompt.reasoning and not prompt.is_cancelled:
                # More of the same answer may follow at once.
                prompt.changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_SETTLE_SECONDS):
                        await prompt.changed.wait()

    # What happens in the space

    def _handle_envelope(self, envelope: Envelope) -> None:
        if envelope.sender == self._space.me:
            return
        for prompt in self._prompts.values():
            self._note(prompt, envelope)
        update = view.update_of(envelope)
        if envelope.kind == "mcp/request":
            call = next((self._calls[id] for id in envelope.correlation_id if id in self._calls), None)
            if update is not None or call is not None:
                self._note_call(envelope.id, call or envelope.id)
        elif envelope.kind == "mcp/response" and update is not None:
            # An editor knows only calls that it was told of: not lists of tools, nor what it approved itself.
            call = self._calls.pop(envelope.correlation_id[0], None)
            self._calls.pop(call or "", None)
            update = None if call is None else update | {"toolCallId": call}
        if update is not None:
            self._show(update)

    def _note_call(self, id: str, call: str) -> None:
        self._calls[id] = call

    def _note(self, prompt: Prompt, envelope: Envelope) -> None:
        about = prompt.chat_id in envelope.correlation_id
        match envelope.kind:
            case "chat" if about:
                prompt.is_answered = True
            case "chat/acknowledge" if about:
                prompt.has_sign = True
            case "reasoning/start" if about:
                prompt.has_sign = True
                prompt.reasoning.add(envelope.id)
            case "reasoning/conclusion" | "reasoning/cancel":
                prompt.reasoning.discard((envelope.context or "").rpartition("/")[2])
            case _:
                return
        prompt.changed.set()

    def _show(self, update: dict[str, Json]) -> None:
        if not self._session:
            return
        try:
            self.peer.notify("session/update", {"sessionId": self._session, "update": update})
        except PeerGone as gone:
            log.debug("not shown", extra={"why": str(gone)})

    # Proposals

    def _handle_proposal(self, seen: SeenProposal) -> None:
        if not self._session or seen.id in self._asked:
            return
        hosts = seen.to
        if not hosts or not self._space.may_request(hosts, seen.method, seen.params):
            # Somebody else's to decide; it is seen all the same.
            who = f"{seen.proposer} proposes {seen.params.get('name') or seen.method}; others decide that."
            self._show(view.note(who))
            return
        self._asked[seen.id] = None
        self._tasks.start(self._ask(seen))

    async def _begin_session(self) -> None:
        self._show(editor_comments.COMMANDS)
        await self._ask_about_open()

    async def _ask_about_open(self) -> None:
        await self._space.refresh_proposals()
        await self._space.recall_origins()
        for seen in self._space.proposals.open():
            if seen.proposer != self._space.me:
                self._handle_proposal(seen)

    async def _ask(self, seen: SeenProposal) -> None:
        decided = asyncio.Event()
        told = seen.origins, len(seen.comments)

        def watch() -> None:
            nonlocal told
            now = seen.origins, len(seen.comments)
            if seen.status != "pending":
                decided.set()
            elif now != told:
                # Origins are found out in the moment after a proposal: the editor is asking already.
                told = now
                if seen.id in self._calls:
                    self._show({"sessionUpdate": "tool_call_update", **self._tool_call(seen)})

        seen.watchers.append(watch)
        try:
            async with self._slots:
                await self._ask_editor(seen, decided)
        finally:
            seen.watchers.remove(watch)
            self._asked.pop(seen.id, None)

    def _tool_call(self, seen: SeenProposal) -> dict[str, Json]:
        return view.permission_of(seen, (self._space.me, self._space.name))

    async def _ask_editor(self, seen: SeenProposal, decided: asyncio.Event) -> None:
        if seen.status != "pending":
            return
        tool_call = self._tool_call(seen)
        self._note_call(seen.id, seen.id)
        self._show({"sessionUpdate": "tool_call", **tool_call})
        offer = again_offer(self._space, seen)
        params: dict[str, Json] = {
            "sessionId": self._session,
            "toolCall": tool_call,
            "options": view.options_of(offer),
        }
        request = asyncio.ensure_future(self.peer.request("session/request_permission", params))
        try:
            await wait_for_any(request, decided.wait())
        finally:
            if not request.done():
                # Tells the editor that nobody waits any more.
                await end_tasks([request])
        if request.cancelled():
            # If not, its result has been shown.
            if seen.id in self._calls:
                self._show(_decided_elsewhere(seen))
            return
        if (fault := request.exception()) is not None:
            log.info("not decided in the editor", extra={"why": str(fault)})
            return
        outcome = request.result().get("outcome")
        chosen = outcome.get("optionId") if isinstance(outcome, dict) else None
        await self._decide(seen, chosen, offer)

    async def _decide(self, seen: SeenProposal, chosen: Json, offer: AgainOffer | None) -> None:
        """Only the options that were offered decide; everything else leaves it open for others."""
        try:
            if chosen == view.APPROVE or (chosen == view.AGAIN and offer is not None):
                done = await self._space.approve(seen)
                self._show(view.result_update(seen.id, done.result))
                if chosen == view.AGAIN:
                    await self._remember(seen, offer)
            elif chosen == view.REJECT:
                await self._space.reject(seen)
                self._show(_status(seen.id, "failed", "Rejected."))
            else:
                self._show(_status(seen.id, "pending", "Not decided here. It is still pending in the space."))
        except VoteCounted as voted:
            self._show(_status(seen.id, "pending", f"Voted: {voted}."))
        except MootError as fault:
            self._show(_status(seen.id, "failed", str(fault)))

    async def _remember(self, seen: SeenProposal, offer: AgainOffer | None) -> None:
        try:
            words = await remember_call(self._space, payload_of(seen, offer))
        except MootError as fault:
            words = str(fault)
        self._show(view.note(words))


def _status(id: str, status: str, text: str) -> dict[str, Json]:
    return {
        "sessionUpdate": "tool_call_update",
        "toolCallId": id,
        "status": status,
        "content": [{"type": "content", "content": view.text_block(text)}],
    }


def _decided_elsewhere(seen: SeenProposal) -> dict[str, Json]:
    status = "in_progress" if seen.status == "fulfilled" else "failed"
    return _status(seen.id, status, f"{seen.state_text[:1].upper()}{seen.state_text[1:]}.")
