"""A foreign A2A agent as a member of a space.

    chat for us → acknowledge → reasoning/start → message to the agent ⇄ its task → chat

Several tasks run at once, each for one chat. The agent is sent a message once; a lost connection, and a
restart of ours, go on with its task. What the agent does at its own place is neither seen nor decided here:
here it can chat and reason, within the rights of its member.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field
from typing import Final

from a2a.types import Message, Part, Role

from moot.agents.a2a import agent_client
from moot.agents.a2a.a2a_settings import JoinSettings
from moot.agents.a2a.agent_card import FoundCard, find_card
from moot.agents.a2a.agent_client import AgentClient, AgentFault, AgentTooMuch, Events
from moot.agents.a2a.message_parts import shorten
from moot.agents.a2a.task_file import ForwardedChat, Question, TaskFile
from moot.agents.a2a.task_turn import TaskTurn
from moot.agents.acp.acp_controls import AcpControls
from moot.agents.acp.prompt_text import message_text
from moot.agents.secret_filter import SecretFilter
from moot.errors import MootError
from moot.participant import CloseReason, JoinedSpace
from moot.participant.programs.chat_intake import ChatIntake, TurnQueue
from moot.participant.programs.repeated_send import deliver
from moot.protocol.envelope import Envelope
from moot.protocol.hidden_text import show_hidden
from moot.protocol.operation import Json
from moot.resilience.task_set import end_tasks, wait_for_any

# A task in all, waiting for people of the other side included.
TASK_SECONDS: Final = 86_400.0
# Tasks at once, and turns that one member may cause within a minute: an agent of others is paid by them.
MAX_TASKS: Final = 4
MAX_CHATS_PER_MINUTE: Final = 20
# Chats that wait for their turn.
MAX_QUEUED_CHATS: Final = 32
# Tasks in which the agent has asked something; of more, the oldest question is forgotten.
MAX_QUESTIONS: Final = 100

log = logging.getLogger(__name__)

_MAX_SHOWN_SKILLS: Final = 20


@dataclass(slots=True, eq=False)
class _Work:
    """A chat for the agent, or without a text: a task of the last run."""

    chat: ForwardedChat
    text: str = ""
    about: tuple[str, ...] = ()
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    stop_why: str = ""
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self, why: str) -> None:
        self.stop_why = self.stop_why or why
        self.stop.set()


class A2aMember:
    """One foreign agent in one space. `start` it, then `run` it in a space."""

    def __init__(self, settings: JoinSettings) -> None:
        self.settings = settings
        self.controls = AcpControls(self)
        self.file = TaskFile(settings.state_folder / "tasks.json")
        self.found: FoundCard | None = None
        self.turns = 0
        self.refused = 0
        self._client: AgentClient | None = None
        self._space: JoinedSpace | None = None
        self._secrets = SecretFilter([settings.agent_token] if settings.agent_token else ())
        self._queue: TurnQueue[_Work] = TurnQueue(
            self._refuse_chat,
            max_queued=MAX_QUEUED_CHATS,
            max_per_minute=MAX_CHATS_PER_MINUTE,
            too_many=f"I pass on {MAX_CHATS_PER_MINUTE} messages a minute of one member: write later.",
            full=f"{MAX_QUEUED_CHATS} messages wait already: write again later.",
        )
        self._running: dict[str, _Work] = {}

    async def start(self) -> None:
        """Fetch the agent's card; raises UsageError or Unreachable with what to do."""
        self.found = await find_card(self.settings)
        self._client = AgentClient(self.found.card, self.settings)

    async def stop(self) -> None:
        if self._client is not None:
            await self._client.close()

    def _agent(self) -> AgentClient:
        assert self._client is not None  # noqa: S101  # `start` comes first
        return self._client

    def statement(self) -> str:
        """What people have to know of this agent before they rely on it."""
        assert self.found is not None  # noqa: S101  # `start` comes first
        card = self.found.card
        lines = [f"I am {_line(card.name, 100)}, an agent of others, reached at {self.found.url} by A2A."]
        if card.provider.organization:
            lines.append(f"My card names as my provider: {_line(card.provider.organization, 200)}.")
        lines.append(f"My card is {self.found.signature}.")
        if card.description:
            lines.append(f"My card says of me: {_line(card.description, 500)}")
        if card.skills:
            names = ", ".join(_line(skill.name, 100) for skill in card.skills[:_MAX_SHOWN_SKILLS])
            lines.append(f"Skills: {names}.")
        lines.append(
            "What you write to me goes to that server. What I do there is neither seen nor decided here."
        )
        return "\n".join(lines)

    # In the space

    async def run(self, space: JoinedSpace) -> CloseReason:
        """Take part until the connection ends for good. Call this first, so that no chat is missed."""
        self._space = space
        ChatIntake(space, self._take_chat, answers=self.settings.answers).start()
        space.on("chat/cancel")(self._handle_chat_cancel)
        async with asyncio.TaskGroup() as group:
            work = [group.create_task(self._settle_last_run(space))]
            for _ in range(MAX_TASKS):
                work.append(group.create_task(self._run_turns(space)))
            try:
                return await space.stay()
            finally:
                for task in work:
                    task.cancel()

    async def _settle_last_run(self, space: JoinedSpace) -> None:
        """Tell who we are, and go on with tasks that the last run has left."""
        left = list(self.file.record.open_chats)
        await deliver(space, "chat", {"text": self._secrets.clean(self.statement())})
        assert self.found is not None  # noqa: S101  # `start` comes first
        card = self.found.card.SerializeToString(deterministic=True)
        digest, before = hashlib.sha256(card).hexdigest(), self.file.record.card_digest
        if before and before != digest:
            await deliver(space, "chat", {"text": "My card is not the one of the last time I was here."})
        self.file.record.card_digest = digest
        self.file.write()
        for chat in left:
            if chat.task_id:
                self._queue.resume(_Work(chat))
                continue
            text = (
                "I was stopped while I passed this on. Whether the agent got it is not known; I have not "
                "repeated it. Look, then ask again."
                if chat.started
                else "I was stopped before I came to this. Ask again."
            )
            to = (chat.sender,) if chat.sender in space.roster else ()
            await deliver(space, "chat", {"text": text}, to=to, about=chat.id)
            self.file.remove(chat.id)

    # Chats

    async def _take_chat(self, chat: Envelope) -> None:
        if self._space is not None:
            text, about = str(chat.payload["text"]), tuple(chat.correlation_id)
            work = _Work(ForwardedChat(chat.id, chat.sender), text, about)
            await self._queue.queue_chat(self._space, chat, work, lambda each: self.file.add(each.chat))

    async def _refuse_chat(self, chat: Envelope, text: str) -> None:
        if self._space is not None:
            await deliver(self._space, "chat", {"text": text}, to=(chat.sender,), about=chat.id)

    def _handle_chat_cancel(self, envelope: Envelope) -> None:
        """MEW 3.4.2: a cancelled chat needs no answer."""
        for id in envelope.correlation_id:
            if id in self._running:
                self._running[id].end(f"{envelope.sender} cancelled the message")
        ids = envelope.correlation_id
        for work in self._queue.remove(lambda each: each.chat.id in ids and bool(each.text)):
            self.file.remove(work.chat.id)

    # Turns

    async def _run_turns(self, space: JoinedSpace) -> None:
        while True:
            await self._queue.wait()
            while space.paused is not None and space.close_reason is None:
                with suppress(MootError):
                    await space.ready()
            if (work := self._queue.take()) is None:
                # It was cancelled meanwhile.
                continue
            self._running[work.chat.id] = work
            try:
                await self._run_turn(space, work)
            finally:
                work.over.set()
                del self._running[work.chat.id]
            self.file.remove(work.chat.id)

    async def _run_turn(self, space: JoinedSpace, work: _Work) -> None:
        """One chat, until its task is settled. Cancelled with us, it is left for the next run."""
        chat, client = work.chat, self._agent()
        self.turns += 1
        question = self.file.take_question(chat.sender, work.about) if work.text else None
        key = "" if self.settings.style == "quoted" else chat.sender

        def note_task(task_id: str, context_id: str) -> None:
            self.file.record.contexts[key] = context_id or self.file.record.contexts.get(key, "")
            self.file.add(ForwardedChat(chat.id, chat.sender, started=True, task_id=task_id))

        turn = TaskTurn(
            space,
            self._secrets,
            chat_id=chat.id,
            sender=chat.sender,
            id_of=self.file.id_of,
            on_task=note_task,
            task_id=question.task_id if question is not None else chat.task_id,
        )
        if work.text:
            self.file.add(ForwardedChat(chat.id, chat.sender, started=True, task_id=turn.task_id))
            events = client.send(self._message(space, work, question, key))
        else:
            events = client.follow(chat.task_id)
        async with AsyncExitStack() as stack:
            if space.may("reasoning/start", {"message": ""}):
                about = f"{chat.sender} asks: {work.text[:200]}" if work.text else "going on after a restart"
                with suppress(MootError):
                    turn.reasoning = await stack.enter_async_context(
                        space.reasoning(about, about=chat.id, stop=False)
                    )
            ending = await self._follow(turn, work, events)
        self.refused += turn.refused
        if turn.question_id:
            asked = Question(turn.task_id, turn.context_id, chat.sender, turn.question_id)
            self.file.ask(asked, MAX_QUESTIONS)
        if ending:
            await turn.chat(self._secrets.clean(ending))
        elif not turn.chats:
            await turn.chat("The agent ended this without a word.")

    async def _follow(self, turn: TaskTurn, work: _Work, events: Events) -> str:
        """Tell what the agent sends until it has ended, or was stopped; what is to be said about that."""

        async def tell() -> None:
            async with aclosing(events) as told:
                async for event in told:
                    await turn.handle_event(event)

        telling = asyncio.ensure_future(tell())
        stopped = [work.stop.wait()]
        if turn.reasoning is not None:
            stopped.append(turn.reasoning.cancelled.wait())
        try:
            await wait_for_any(telling, *stopped, timeout_seconds=TASK_SECONDS)
            if not telling.done():
                why = work.stop_why or (
                    "its reasoning was cancelled"
                    if turn.reasoning is not None and turn.reasoning.cancelled.is_set()
                    else f"it took longer than {TASK_SECONDS:g} s"
                )
                await end_tasks([telling])
                return f"I stopped: {why}; {await self._cancel(turn)}."
            await telling
        except AgentTooMuch as fault:
            return f"I stopped: {fault}; {await self._cancel(turn)}."
        except AgentFault as fault:
            return (
                f"The agent cannot be used for this: {fault}. Whether it did anything is not known; I have "
                "not repeated it."
            )
        finally:
            telling.cancel()
        return ""

    async def _cancel(self, turn: TaskTurn) -> str:
        if not turn.task_id:
            return "it had not named a task yet, so whether it goes on is not known"
        return await self._agent().cancel(turn.task_id)

    def _message(self, space: JoinedSpace, work: _Work, question: Question | None, key: str) -> Message:
        chat, contexts = work.chat, self.file.record.contexts
        context = question.context_id if question is not None else contexts.get(key, "")
        texts = [work.text]
        if self.settings.style == "quoted":
            texts = [message_text(chat.sender, work.text)]
            if not context:
                texts.insert(0, _introduction(space.me, space.space))
        message = Message(
            # The same in every run: an agent that gets it twice can tell.
            message_id=self.file.id_of(f"message/{chat.id}"),
            role=Role.ROLE_USER,
            parts=[Part(text=text) for text in texts],
            context_id=context,
            task_id=question.task_id if question is not None else "",
        )
        message.metadata.update({"sender": chat.sender})
        return message

    # Controls

    def metrics(self) -> Mapping[str, Json]:
        return {
            "agent": "" if self.found is None else _line(self.found.card.name, 100),
            "turns": self.turns,
            "tasks_running": len(self._running),
            "chats_waiting": self._queue.waiting,
            "questions_open": len(self.file.record.questions),
            "refused_messages": self.refused,
        }

    def pause(self, by: str) -> None:
        """A2A has no pause: tasks go on at the agent. It gets nothing new, and nothing of it is told."""

    async def clear(self, by: str) -> None:
        """Cancel everything and begin a new conversation."""
        self._end_all(f"cleared by {by}")
        self.file.record.contexts, self.file.record.questions = {}, []
        self.file.write()

    async def compact(self) -> bool:
        return False

    def restart(self, by: str) -> None:
        self._end_all(f"restarted by {by}")

    async def shut_down(self, by: str) -> None:
        self._end_all(f"shut down by {by}")
        ending = [asyncio.ensure_future(work.over.wait()) for work in self._running.values()]
        if ending:
            await asyncio.wait(ending, timeout=agent_client.CANCEL_SECONDS)

    def _end_all(self, why: str) -> None:
        for work in self._queue.remove(lambda _: True):
            self.file.remove(work.chat.id)
        for work in self._running.values():
            work.end(why)


def _introduction(me: str, space: str) -> str:
    where = f"the space {show_hidden(space)}" if space else "a space"
    return (
        f"You are {show_hidden(me)}, a member of {where}: a shared workspace of people, agents and tools. "
        "Several people may talk to you. Each message is given below a line that names who wrote it; its own "
        "lines begin with '> '. Everybody there sees what you answer."
    )


def _line(text: str, max_chars: int) -> str:
    return shorten(" ".join(show_hidden(text).split()), max_chars)
