"""What callers ask of one member, by the SDK's interface: messages, tasks, streams, push targets, the card.

A message is a chat of the caller to the member. A message with one data part `{"tool": …, "arguments": …}` is
a call of that tool of the member: made where the caller's rights allow it, and proposed otherwise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Final

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler, validate_request_params
from a2a.server.tasks.push_notification_config_store import normalize_push_notification_config
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import (
    InternalError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a.utils.task import (
    apply_history_length,
    validate_history_length,
    validate_page_size,
)

from moot.agents.a2a import published_card
from moot.agents.a2a.a2a_settings import ServeSettings
from moot.agents.a2a.agent_client import SETTLED
from moot.agents.a2a.callers import Caller
from moot.agents.a2a.card_signer import CardSigner
from moot.agents.a2a.message_parts import read_content
from moot.agents.a2a.published_card import make_card, tools_of
from moot.agents.a2a.push_sender import PushSender
from moot.agents.a2a.task_book import TASK_SECONDS, ServedTask, TaskBook, TaskEvent
from moot.agents.a2a.task_pages import check_status, page_of
from moot.agents.a2a.task_tracker import TaskTracker
from moot.errors import (
    ApprovalRequired,
    ConnectionClosed,
    ConnectionLost,
    MootError,
    OutcomeUnknown,
    TimedOut,
)
from moot.participant.connection.envelope_writer import new_id
from moot.protocol.origin_report import A2A_CONTEXT
from moot.resilience.task_set import TaskSet, end_tasks

# A call of a tool that needs no approval.
CALL_SECONDS: Final = 300.0
# How long a request waits for its task to be settled, unless it says that it does not wait.
BLOCKING_SECONDS: Final = 300.0
# Messages of a caller to one task.
MAX_TASK_MESSAGES: Final = 1_000
# Targets of push notifications of one task.
MAX_PUSH_TARGETS: Final = 5

log = logging.getLogger(__name__)

# Faults behind which the gateway may have taken what was sent.
_NO_WORD: Final = (TimedOut, ConnectionLost, ConnectionClosed, OutcomeUnknown)
_OLD_METHODS: Final = ("message/", "tasks/")


class MemberRequestHandler(RequestHandler):
    """The requests for one member."""

    def __init__(
        self,
        member: str,
        settings: ServeSettings,
        book: TaskBook,
        tracker: TaskTracker,
        push: PushSender,
        signer: CardSigner,
    ) -> None:
        self._member = member
        self._settings = settings
        self._book = book
        self._tracker = tracker
        self._push = push
        self._signer = signer
        self._calls = TaskSet("a2a calls")
        self._running: dict[str, asyncio.Task[None]] = {}

    async def close(self) -> None:
        await self._calls.close()

    # Messages

    @validate_request_params
    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task | Message:
        validate_history_length(params.configuration)
        served, begin = await self._accept(params, context)
        async with aclosing(self._book.follow(served)) as events:
            await anext(events)
            # A chat to a member that waits for a decision: what comes next is the answer, not what is there.
            is_open = begin is not _do_nothing and not served.proposal_id
            await begin()
            if not params.configuration.return_immediately:
                await self._wait_settled(served, events, has_begun=is_open)
        return apply_history_length(served.snapshot(), params.configuration)

    @validate_request_params
    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Task | TaskEvent, None]:
        validate_history_length(params.configuration)
        served, begin = await self._accept(params, context)
        async with aclosing(self._book.follow(served)) as events:
            # Followed before it begins: a stream has every change.
            first = await anext(events)
            await begin()
            assert isinstance(first, Task)  # noqa: S101  # as `follow` begins
            yield apply_history_length(first, params.configuration)
            async for event in events:
                yield event

    async def _accept(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> tuple[ServedTask, Callable[[], Awaitable[None]]]:
        """The task of a message (a new one, the one it names, the one it made before), and what to do.

        Everything that refuses a message comes before.
        """
        caller, message = _caller(context), params.message
        text, call = read_content(message)
        known = self._book.of_message(caller.name, self._member, message.message_id)
        if known is not None and message.task_id in ("", known.task.id):
            # Sent again, since the answer got lost perhaps.
            return known, _do_nothing
        push = params.configuration.task_push_notification_config
        has_push = params.configuration.HasField("task_push_notification_config") and bool(push.url)
        if has_push:
            await self._push.check(push)
        if message.task_id:
            served = self._book.get(message.task_id, caller.name, self._member)
            if message.context_id and message.context_id != served.task.context_id:
                raise InvalidParamsError("the message names another context than its task has")
            if served.is_over:
                raise UnsupportedOperationError("the task has ended: send a message without a task")
            if call is not None:
                raise UnsupportedOperationError("a call of a tool is a task of its own")
            most = MAX_TASK_MESSAGES
            if len(served.message_ids) >= most:
                raise UnsupportedOperationError(
                    f"the task has {most} messages, the most that one may have: send one without a task"
                )
        else:
            served = self._book.create(caller.name, self._member, message.context_id)
        self._book.add_message(served, message)
        if has_push:
            try:
                self._add_push(served, push, context)
            except UnsupportedOperationError:
                self._book.take_back(served)
                raise
        if call is None:
            return served, partial(self._chat, caller, served, text)
        return served, partial(self._call, caller, served, call)

    def _save(self, served: ServedTask) -> None:
        try:
            self._book.save(served)
        except OSError as fault:
            log.error("a task cannot be written", extra={"why": fault.strerror})
            raise InternalError("the task cannot be kept, so nothing was done: try again later") from None

    def _save_message(self, served: ServedTask, chat_id: str = "") -> None:
        """Write down what comes of the newest message; without that it never came, and may come again."""
        try:
            self._save(served)
        except InternalError:
            self._book.take_back(served, chat_id)
            raise

    async def _chat(self, caller: Caller, served: ServedTask, text: str) -> None:
        # Written down before it is sent: after a restart it is known, and not sent again.
        chat_id = new_id()
        proposals = [served.proposal_id] if served.proposal_id else list(served.pending)
        if not served.proposal_id:
            self._book.add_chat(served, chat_id)
        self._save_message(served, chat_id)
        if self._member not in caller.space.roster:
            self._refuse(served, f"{self._member} is not in the space at the moment.")
            return
        try:
            await caller.space.send(
                "chat",
                {"text": text},
                to=self._member,
                about=proposals,
                id=chat_id,
                confirm=True,
            )
        except MootError as fault:
            self._not_taken(served, "message", fault)

    def _not_taken(self, served: ServedTask, what: str, fault: MootError) -> None:
        """Only the gateway's word ends a task: without that the space may have taken it all the same."""
        state = served.task.status.state
        if not isinstance(fault, _NO_WORD):
            self._refuse(served, f"The space did not take the {what}: {fault}")
        elif what == "message" or state == TaskState.TASK_STATE_SUBMITTED:
            text = (
                f"Whether the space took the {what} is not known: {fault}. If it did, this goes on by "
                "itself; look there before you send it again."
            )
            self._book.set_state(served, state, text)

    def _refuse(self, served: ServedTask, text: str) -> None:
        self._book.set_state(served, TaskState.TASK_STATE_REJECTED, text)

    # Calls of tools

    async def _call(self, caller: Caller, served: ServedTask, params: dict[str, Any]) -> None:
        space = caller.space
        if self._member not in space.roster:
            self._save_message(served)
            self._refuse(served, f"{self._member} is not in the space at the moment.")
        elif space.may_request(self._member, "tools/call", params):
            served.request_id = new_id()
            self._save_message(served)
            self._book.set_state(served, TaskState.TASK_STATE_WORKING)
            self._running[served.task.id] = self._calls.start(self._run_call(caller, served, params))
        elif space.may_propose(self._member, "tools/call", params):
            await self._propose_call(caller, served, params)
        else:
            self._save_message(served)
            self._refuse(served, f"{caller.name} may neither call nor propose {params['name']}.")

    async def _propose_call(self, caller: Caller, served: ServedTask, params: Mapping[str, Any]) -> None:
        id = new_id()
        self._book.set_proposal(served, id)
        self._save_message(served)
        try:
            await caller.space.propose(
                self._member,
                "tools/call",
                params,
                id=id,
                context=f"{A2A_CONTEXT}{served.task.id}",
                stay_open=True,
                timeout_seconds=TASK_SECONDS,
            )
        except MootError as fault:
            self._not_taken(served, "proposal", fault)

    async def _run_call(self, caller: Caller, served: ServedTask, params: Mapping[str, Any]) -> None:
        try:
            outcome = await caller.space.perform(
                self._member,
                "tools/call",
                params,
                propose="never",
                timeout_seconds=CALL_SECONDS,
            )
        except ApprovalRequired:
            # A right does not lift a quorum (D-103).
            served.request_id = ""
            await self._propose_call(caller, served, params)
        except MootError as fault:
            self._book.set_state(served, TaskState.TASK_STATE_FAILED, str(fault))
        else:
            self._tracker.finish_call(served, outcome.result)
        finally:
            self._running.pop(served.task.id, None)

    # Tasks

    async def _wait_settled(
        self, served: ServedTask, events: AsyncIterator[Task | TaskEvent], *, has_begun: bool
    ) -> None:
        """Until it has ended or needs a decision, or for as long as a request may wait."""
        if not has_begun and served.task.status.state in SETTLED:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(BLOCKING_SECONDS):
                async for _ in events:
                    if served.task.status.state in SETTLED:
                        return

    @validate_request_params
    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task | None:
        validate_history_length(params)
        served = self._book.get(params.id, _caller(context).name, self._member)
        return apply_history_length(served.snapshot(), params)

    @validate_request_params
    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        validate_history_length(params)
        if params.HasField("page_size"):
            validate_page_size(params.page_size)
        check_status(params, context)
        name = _caller(context).name
        found = [each for each in self._book if each.owner == name and each.member == self._member]
        return page_of(found, params)

    @validate_request_params
    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task | None:
        caller = _caller(context)
        served = self._book.get(params.id, caller.name, self._member)
        if served.is_over:
            raise TaskNotCancelableError("the task has ended already")
        try:
            if served.proposal_id:
                await caller.space.send(
                    "mcp/withdraw", {"reason": "no_longer_needed"}, about=served.proposal_id, confirm=True
                )
            for chat in served.chat_ids:
                await caller.space.chats.cancel(chat, "no_longer_needed")
        except MootError as fault:
            raise TaskNotCancelableError(f"the space did not take it back: {fault}") from None
        running = self._running.get(served.task.id)
        if running is not None:
            # The member is told; whether it stopped in time is not known.
            await end_tasks([running])
        self._book.set_state(served, TaskState.TASK_STATE_CANCELED, f"Cancelled by {caller.name}.")
        return served.snapshot()

    @validate_request_params
    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Task | TaskEvent, None]:
        served = self._book.get(params.id, _caller(context).name, self._member)
        if served.is_over:
            raise UnsupportedOperationError("the task has ended: get it instead")
        async with aclosing(self._book.follow(served)) as events:
            async for event in events:
                yield event

    # Push notifications

    def _add_push(
        self, served: ServedTask, config: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        kept = normalize_push_notification_config(served.task.id, config)
        most = MAX_PUSH_TARGETS
        if kept.id not in served.push and len(served.push) >= most:
            raise UnsupportedOperationError(f"a task has at most {most} push targets: delete one first")
        served.push[kept.id] = kept
        if str(context.state.get("method", "")).startswith(_OLD_METHODS):
            served.old_push.add(kept.id)
        return kept

    @validate_request_params
    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        served = self._book.get(params.task_id, _caller(context).name, self._member)
        await self._push.check(params)
        kept = self._add_push(served, params, context)
        self._save(served)
        return kept

    @validate_request_params
    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        served = self._book.get(params.task_id, _caller(context).name, self._member)
        found = served.push.get(params.id or params.task_id)
        if found is None:
            raise TaskNotFoundError("the task has no such push target")
        return found

    @validate_request_params
    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        served = self._book.get(params.task_id, _caller(context).name, self._member)
        return ListTaskPushNotificationConfigsResponse(configs=list(served.push.values()))

    @validate_request_params
    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        served = self._book.get(params.task_id, _caller(context).name, self._member)
        if served.push.pop(params.id or params.task_id, None) is not None:
            self._save(served)

    # The card

    async def on_get_extended_agent_card(
        self,
        params: GetExtendedAgentCardRequest,  # noqa: ARG002
        context: ServerCallContext,
    ) -> AgentCard:
        """The card with the tools that this caller sees."""
        space = _caller(context).space
        tools = await tools_of(space, self._member, published_card.MAX_SKILLS)
        return self._signer.sign(make_card(self._member, space.space, self._settings, tools))


async def _do_nothing() -> None:
    """A message that came before."""


def _caller(context: ServerCallContext) -> Caller:
    caller = context.state["caller"]
    assert isinstance(caller, Caller)  # noqa: S101  # nobody comes here without one
    return caller
