"""One turn after another: a chat becomes a prompt, and however that ends, whoever asked is told.

A rejection is told to the agent after the turn, as the next prompt. Nothing is ever prompted twice: what the
agent had done when it ended is not known here.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any, Final

from moot.agents.acp.acp_settings import AcpSettings
from moot.agents.acp.agent_process import START_SECONDS, AgentProcess
from moot.agents.acp.json_rpc import PeerError, PeerGone
from moot.agents.acp.open_permission import PermissionRejection
from moot.agents.acp.permissions import TURN_SECONDS, Permissions
from moot.agents.acp.prompt_text import blocks, introduction, message_text, rejection_text, resume_text
from moot.agents.acp.session_file import OpenChat, SessionFile
from moot.agents.acp.supervised_agent import SupervisedAgent
from moot.agents.acp.update_relay import Turn, UpdateRelay
from moot.errors import MootError
from moot.participant import JoinedSpace
from moot.participant.programs.chat_intake import ChatIntake, DecisionRemarks, TurnQueue
from moot.protocol.envelope import Envelope

# Chats that wait for their turn, and turns that one member may cause within a minute.
MAX_QUEUED_TURNS: Final = 32
MAX_TURNS_PER_MINUTE: Final = 20
# How long a cancelled turn may go on before the agent is ended.
CANCEL_SECONDS: Final = 10.0
# How long an agent may say nothing in a turn, with nothing to decide, before people are told.
QUIET_SECONDS: Final = 120.0
# Rejections after which the agent is not prompted again by itself: then somebody has to talk to it.
MAX_REJECTIONS: Final = 3
# Permissions of one turn that come to nothing; then it is cancelled.
MAX_REFUSALS: Final = 30

# Names under which agents have the command that compacts their context.
_COMPACT_COMMANDS: Final = ("compact", "compress")
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


class TurnRunner:
    """Prompts the agent in one space. `run` is its worker."""

    def __init__(
        self,
        space: JoinedSpace,
        relay: UpdateRelay,
        agent: SupervisedAgent,
        settings: AcpSettings,
        file: SessionFile,
    ) -> None:
        self.space = space
        self.relay = relay
        self.intake = ChatIntake(space, self._take_chat, answers=settings.answers)
        # Chats about decisions: the agent is told with the decision, or with the next prompt.
        self.remarks = DecisionRemarks()
        most = MAX_TURNS_PER_MINUTE
        self.queue: TurnQueue[Envelope] = TurnQueue(
            self._refuse_chat,
            max_queued=MAX_QUEUED_TURNS,
            max_per_minute=most,
            too_many=f"I answer {most} messages a minute of one member: write later.",
            full="I have too much to do already: write again later.",
        )
        self.permissions = Permissions(space, relay, agent.profile, settings.folder, self._add_rejection)
        self.turns = 0
        # The chat of the turn that runs.
        self.current: Envelope | None = None
        self._agent = agent
        self._settings = settings
        self._file = file
        self._prompting = asyncio.Lock()
        self._stop = asyncio.Event()
        self._stop_why = ""
        self._is_paused_turn = False
        self._paused_by = ""
        self._rejections: list[PermissionRejection] = []
        self._refusals = 0
        # When the agent sent something last.
        self.last_heard = 0.0

    @property
    def is_stopping(self) -> bool:
        return self._stop.is_set()

    def stop(self, why: str) -> None:
        """End the turn or command that runs, if there is one. The first reason counts; a pause is none."""
        if self._prompting.locked():
            if self._is_paused_turn:
                self._stop_why, self._is_paused_turn = "", False
            self._stop_why = self._stop_why or why
            self._stop.set()

    def pause(self, by: str) -> None:
        self._paused_by = by
        if self.current is not None and not self.is_stopping:
            self.stop(f"paused by {by}")
            self._is_paused_turn = True

    async def clear(self, by: str) -> None:
        """Drop what waits, stop the turn, and open a new session; raises MootError if there is no agent."""
        self._drop(self.queue.remove(lambda _: True))
        self.stop(f"cleared by {by}")
        async with self._prompting:
            if not self._agent.ready.is_set():
                raise MootError("the agent does not run, and will go on with what it knows")
            await self._agent.new_session()
            self._rejections.clear()

    async def compact(self, commands: tuple[str, ...]) -> bool:
        """Run the agent's own command for it; False if it has none. Raises MootError."""
        name = next((each for each in _COMPACT_COMMANDS if each in commands), None)
        if name is None or not self._agent.ready.is_set():
            return False
        async with self._prompting:
            try:
                await self._agent.process.peer.request(
                    "session/prompt",
                    {"sessionId": self._agent.session, "prompt": blocks(f"/{name}")},
                    START_SECONDS,
                )
            except (PeerError, PeerGone) as fault:
                raise MootError(f"the agent did not compact: {fault}") from None
        return True

    async def run(self) -> None:
        while True:
            await self.queue.wait()
            await self._wait_until_able()
            async with self._prompting:
                if not self._is_able or (chat := self.queue.take()) is None:
                    # Paused again, or it was cancelled meanwhile.
                    continue
                self.current = chat
                try:
                    await self._run_turn(chat)
                finally:
                    self.current = None
            self._file.remove(chat.id)

    def handle_cancel(self, envelope: Envelope) -> None:
        """MEW 3.4.2: a cancelled chat needs no answer."""
        if self.current is not None and self.current.id in envelope.correlation_id:
            self.stop(f"{envelope.sender} cancelled the message")
        self._drop(self.queue.remove(lambda chat: chat.id in envelope.correlation_id))

    def _drop(self, chats: list[Envelope]) -> None:
        for chat in chats:
            self._file.remove(chat.id)

    async def _take_chat(self, chat: Envelope) -> None:
        """Queue it, keep it as a remark, or tell its sender why not.

        It is taken only when it is in the file: one that was acknowledged is answered or, after a crash, said
        to be cut off.
        """
        if self.remarks.is_remark(self.space, chat):
            self.remarks.add(chat)
            return
        is_taken = await self.queue.queue_chat(
            self.space, chat, chat, lambda each: self._file.add(OpenChat(each.id, each.sender))
        )
        if is_taken and not self._agent.ready.is_set():
            await self._refuse_chat(
                chat, "The agent does not run at the moment. I pass this on when it is back."
            )

    async def _refuse_chat(self, chat: Envelope, text: str) -> None:
        await self.relay.chat(text, Turn(chat_id=chat.id, sender=chat.sender))

    def _add_rejection(self, rejection: PermissionRejection) -> None:
        """Keep it for the next prompt. An agent that asks on and on is stopped."""
        self._refusals += 1
        if len(self._rejections) < MAX_REFUSALS:
            self._rejections.append(rejection)
        if self._refusals >= MAX_REFUSALS:
            self.stop(f"{self._refusals} of its permissions came to nothing")

    @property
    def _is_able(self) -> bool:
        space = self.space
        return self._agent.ready.is_set() and (space.paused is None or space.close_reason is not None)

    async def _wait_until_able(self) -> None:
        while not self._is_able:
            await self._agent.ready.wait()
            if self.space.paused is not None:
                with suppress(MootError):
                    await self.space.ready()

    def _forget_stop(self) -> None:
        self._stop.clear()
        self._stop_why, self._is_paused_turn = "", False

    async def _run_turn(self, chat: Envelope) -> None:
        space, relay = self.space, self.relay
        self.turns += 1
        self._refusals = 0
        self._forget_stop()
        turn = Turn(chat_id=chat.id, sender=chat.sender)
        self._file.add(OpenChat(chat.id, chat.sender, started=True))
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
                ending = await self._prompt_to_the_end(turn, chat)
                relay.note_unasked_rest()
                await relay.flush()
            finally:
                relay.turn = Turn()
        await self._tell_ending(turn, ending)

    async def _prompt_to_the_end(self, turn: Turn, chat: Envelope) -> Ending:
        texts = [*self._opening(), message_text(chat.sender, str(chat.payload["text"]))]
        told = 0
        while True:
            ending = await self._prompt(turn, texts)
            if ending.stopped and self._is_paused_turn and not ending.gone:
                # From here on, what ends the turn ends it although it waits.
                self._forget_stop()
                await self._wait_until_able()
                if self._stop.is_set() and not self._is_paused_turn:
                    return Ending(stopped=self._stop_why)
                self._forget_stop()
                texts = [resume_text(self._paused_by)]
                continue
            # A turn that we stopped needs no prompt; its reasons come with the next one.
            if ending.stopped or ending.gone or not self._rejections or told >= MAX_REJECTIONS:
                return ending
            told += len(self._rejections)
            texts = self._take_rejections()

    def _opening(self) -> list[str]:
        """What comes before a message: who we are, once, and what was decided or said since."""
        texts, space = [], self.space
        if not self._agent.is_introduced:
            self._agent.is_introduced = True
            texts.append(introduction(space.me, space.space, self._settings.folder))
        return [*texts, *self._take_rejections()]

    def _take_rejections(self) -> list[str]:
        taken = [
            rejection_text(each.what, each.by, each.reason, each.explanation) for each in self._rejections
        ]
        self._rejections.clear()
        for chat in self.remarks.take_remarks():
            text = str(chat.payload["text"])
            if not any(text in each for each in taken):
                taken.append(message_text(chat.sender, text))
        return taken

    async def _prompt(self, turn: Turn, texts: list[str]) -> Ending:
        """One prompt, until the agent has ended it, was stopped, or has ended itself."""
        agent, permissions = self._agent.process, self.permissions
        request = asyncio.ensure_future(
            agent.peer.request("session/prompt", {"sessionId": self._agent.session, "prompt": blocks(*texts)})
        )
        waits = [asyncio.ensure_future(self._stop.wait())]
        if turn.reasoning is not None:
            waits.append(asyncio.ensure_future(turn.reasoning.cancelled.wait()))
        try:
            await self._wait_for_end(turn, [request, *waits])
            stopped = ""
            if not request.done():
                stopped = self._stop_why or (
                    "its reasoning was cancelled"
                    if turn.reasoning is not None and turn.reasoning.cancelled.is_set()
                    else f"it took longer than {TURN_SECONDS:g} s"
                )
                permissions.close_all(stopped)
                await self._cancel_prompt(agent, request)
                # A pause may have become an end.
                stopped = self._stop_why or stopped
            answer = await request
            reason = answer.get("stopReason")
            ending = Ending(reason=reason if isinstance(reason, str) else "", stopped=stopped)
        except PeerError as fault:
            ending = Ending(reason=f"its error: {fault.message}", stopped=self._stop_why)
        except PeerGone as fault:
            ending = Ending(gone=agent.end_reason or str(fault), stopped=self._stop_why)
        finally:
            request.cancel()
            for wait in waits:
                wait.cancel()
            permissions.close_all(self._stop_why or "the turn has ended")
            self.relay.seal()
        return ending

    async def _wait_for_end(self, turn: Turn, waits: list[asyncio.Future[Any]]) -> None:
        """Until one of these is done, or the turn has taken too long; an agent that is stuck is told of."""
        loop = asyncio.get_running_loop()
        end = loop.time() + TURN_SECONDS
        self.last_heard = loop.time()
        told = 0.0
        while (now := loop.time()) < end:
            quiet_at = (self.last_heard if self.last_heard > told else now) + QUIET_SECONDS
            done, _ = await asyncio.wait(
                waits, timeout=min(end, quiet_at) - now, return_when=asyncio.FIRST_COMPLETED
            )
            if done:
                return
            if self.permissions.open:
                # It waits for people, who may take their time.
                self.last_heard = loop.time()
            elif self.last_heard > told and loop.time() - self.last_heard >= QUIET_SECONDS:
                told = self.last_heard
                self._tell_quiet(turn)

    def _tell_quiet(self, turn: Turn) -> None:
        seconds = QUIET_SECONDS
        under_way = "; ".join(call.describe()[:200] for call in list(turn.open_calls.values())[:5])
        self.relay.note(
            f"The agent has said nothing for {seconds:g} s, and nothing of it waits for a decision. "
            f"{f'Under way: {under_way}. ' if under_way else ''}It may be stuck: wait, or cancel the message "
            "to stop it."
        )

    async def _cancel_prompt(self, agent: AgentProcess, request: asyncio.Future[Any]) -> None:
        with suppress(PeerGone):
            agent.peer.notify("session/cancel", {"sessionId": self._agent.session})
        seconds = CANCEL_SECONDS
        await asyncio.wait([request], timeout=seconds)
        if not request.done():
            # It may go on acting: then it must end.
            agent.abandon(f"the agent did not stop within {seconds:g} s and was ended")

    async def _tell_ending(self, turn: Turn, ending: Ending) -> None:
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
        await self.relay.chat(self.relay.clean(text), turn)
