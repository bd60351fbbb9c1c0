"""Requests to a client: input that a tool needs, and decisions that take their time.

A tool may need input. The stateless client gets its request as it is; the handshake client gets requests of
our own, and the call is repeated with the answers.

A call may need somebody's decision. It waits `decision_seconds` first. Then the client is told in the best
way that it supports, and never by an error or by hanging:

    tasks       it polls; the result of the call comes when it is there
    mrtr        its person is asked: wait or withdraw? Each "wait" waits again, MAX_DIALOGS times
    elicitation the same in the handshake era; the dialog goes away when the decision comes
    pending     the call answers that it is pending, under which handle, and how to look it up

Every request is answered within `answer_seconds`, and sooner to clients that were seen to give up sooner
(`ClientTimeout`). A client that stops waiting, disconnects or is killed withdraws nothing: somebody may be
about to decide. What it says outright withdraws: "withdraw" in a dialog, `tasks/cancel`, and a cancellation
that is no timeout, if the same call is not made again soon.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final

from moot.errors import McpError
from moot.mcp.downstream.backend import Backend, BackendCall, McpServerCounts, PendingCall, text_result
from moot.mcp.downstream.client_channel import (
    ClientChannel,
    missing_capability,
    supports_forms,
    supports_tasks,
)
from moot.mcp.downstream.limits import McpServerLimits
from moot.mcp.downstream.rpc import MISSING_CAPABILITY, NOT_DONE, RpcRequest
from moot.mcp.downstream.running_requests import Spawn, why_cancelled
from moot.mcp.downstream.task_extension import McpTasks
from moot.mcp.eras import JsonObject, input_required, is_input_required, progress_token
from moot.protocol import strict_json
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INVALID_PARAMS

# Where the person at the client may decide, they are asked after this; rules decide faster.
PERSON_SECONDS: Final = 1.0
# How often a client that asked for progress is told what is waited for: a decision, a member's list.
PROGRESS_SECONDS: Final = 5.0
# A call that its client cancels outright is withdrawn after this, unless it is made again: clients that
# give up and repeat cancel, too, and a person must not be asked twice.
CANCEL_SECONDS: Final = 10.0
# Some clients give up without a word (Python's SDK 1.x; the shortest time limit that it is used with is
# 4 s). What such a client is told after this it may not have read, so for DOUBT_SECONDS the same call
# gets the same outcome once more.
SILENT_SECONDS: Final = 4.0
DOUBT_SECONDS: Final = 60.0
# How often one call asks "wait or withdraw?". The SDKs' clients stop after 10 rounds with an error.
MAX_DIALOGS: Final = 5
# How often a tool may request input in one call before a handshake client gets an error instead.
MAX_INPUT_ROUNDS: Final = 10

_KEY: Final = "moot_decision"
# Below whatever a tool reports later: progress may only grow, and tools begin at 0 or 1.
_TICK: Final = 1e-6
# Calls that are repeated within this are made at once, not after a time limit: no client has a shorter one.
_AT_ONCE_SECONDS: Final = 1.0
# Answered a little before the client gives up, so that the answer arrives.
_MARGIN: Final = 0.75


class ClientRequests:
    """The requests of one server to its clients. `state_prefix` marks request states that are ours."""

    def __init__(
        self,
        backend: Backend,
        limits: McpServerLimits,
        counts: McpServerCounts,
        tasks: McpTasks,
        state_prefix: str,
        *,
        spawn: Spawn,
    ) -> None:
        self._spawn = spawn
        self._client_timeout = ClientTimeout()
        self._backend = backend
        self._limits = limits
        self._counts = counts
        self._tasks = tasks
        self._prefix = state_prefix

    # Decisions

    async def wait_for_decision(self, pending: PendingCall, client: ClientChannel) -> JsonObject:
        """The result of a call that somebody has to decide on; raises McpError."""
        return await self._wait_or_withdraw(pending, client, 0)

    def resume(self, request: RpcRequest, client: ClientChannel) -> Awaitable[JsonObject] | None:
        """The result, if this request answers "wait or withdraw?". None: an ordinary request."""
        state = request.params.get("requestState")
        if not isinstance(state, str) or not state.startswith(self._prefix):
            return None
        handle, _, round = state.removeprefix(self._prefix).rpartition(".")
        return self._resume(handle, round, request, client)

    async def _resume(
        self, handle: str, round: str, request: RpcRequest, client: ClientChannel
    ) -> JsonObject:
        pending = await self._backend.pending(handle)
        is_round = round.isdecimal() and len(round) < 6
        if pending is None or not is_round or not _is_same_call(pending.call, request):
            raise McpError(INVALID_PARAMS, "this request state is not, or no longer, known for this call")
        responses: Json = request.params.get("inputResponses")
        answer = responses.get(_KEY) if isinstance(responses, dict) else None
        if isinstance(answer, dict) and not pending.finished.is_set():
            choice = _choice(answer)
            await _carry_out(choice, pending)
            if choice == "later":
                self._counts.count_channel("pending")
                return pending.pending_result()
        return await self._wait_or_withdraw(pending, client, int(round))

    async def _wait_or_withdraw(self, pending: PendingCall, client: ClientChannel, round: int) -> JsonObject:
        started = asyncio.get_running_loop().time()
        if pending.waiting:
            # Its client has given up on the earlier request, whether it said so or not.
            self._client_timeout.learn(started - pending.requested_at)
        pending.waiting += 1
        pending.requests += 1
        pending.requested_at = started
        try:
            return await self._decide(pending, client, round, started)
        except asyncio.CancelledError:
            why = why_cancelled()
            if why == "time is up":
                self._client_timeout.learn(asyncio.get_running_loop().time() - started)
            elif why == "call unwanted":
                with suppress(McpError):
                    self._spawn(self._withdraw_unless_repeated(pending))
            raise
        finally:
            pending.waiting -= 1

    async def _withdraw_unless_repeated(self, pending: PendingCall) -> None:
        requests = pending.requests
        try:
            await asyncio.sleep(CANCEL_SECONDS)
        finally:
            # Also when the server ends before.
            if pending.requests == requests:
                await _withdraw(pending, "cancelled by the client")

    async def _decide(
        self, pending: PendingCall, client: ClientChannel, round: int, started: float
    ) -> JsonObject:
        limits = self._limits
        timeout = self._client_timeout.answer_seconds
        end = started + min(max(limits.answer_seconds, limits.decision_seconds), timeout)
        forms = supports_forms(client.capabilities)
        # Whoever can decide at the client is asked soon, and once in any case.
        is_person_next = forms and round == 0 and pending.decide is not None
        seconds = min(PERSON_SECONDS if is_person_next else math.inf, limits.decision_seconds, timeout)
        await self._wait(pending.decided, seconds, pending, client)
        if pending.decided.is_set():
            await self._wait_until(pending.finished, end, pending, client)
        if pending.finished.is_set():
            return await self._finish(pending, client, started)
        asks = forms and not pending.decided.is_set()
        if client.era == "stateless":
            has_tasks = supports_tasks(client.capabilities) and pending.call.method == "tools/call"
            if has_tasks and not (asks and is_person_next):
                self._counts.count_channel("tasks")
                return self._tasks.create(pending)
            if asks and round < MAX_DIALOGS:
                self._counts.count_channel("mrtr")
                question = {"method": "elicitation/create", "params": _dialog(pending)}
                return input_required({_KEY: question}, f"{self._prefix}{pending.handle}.{round + 1}")
        elif asks:
            self._counts.count_channel("elicitation")
            if await self._show_dialog(pending, client, end):
                return await self._finish(pending, client, started)
        self._counts.count_channel("pending")
        return pending.pending_result()

    async def _finish(self, pending: PendingCall, client: ClientChannel, started: float) -> JsonObject:
        waited = asyncio.get_running_loop().time() - started
        doubtful = client.may_give_up_silently and waited >= SILENT_SECONDS
        result = pending.result(
            told=client.is_read and not self._client_timeout.is_over(waited),
            doubt_seconds=DOUBT_SECONDS if doubtful else 0.0,
        )
        return await self.collect_input(pending.call, result, client) if is_input_required(result) else result

    async def _show_dialog(self, pending: PendingCall, client: ClientChannel, end: float) -> bool:
        """Show the dialog until somebody has decided, or the time is over; whether the call is finished."""
        dialog = asyncio.ensure_future(client.ask("elicitation/create", _dialog(pending)))
        settled = asyncio.ensure_future(pending.decided.wait())
        try:
            left = max(0.0, end - asyncio.get_running_loop().time())
            await asyncio.wait({dialog, settled}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if dialog.done() and not settled.done():
                try:
                    choice = _choice(dialog.result())
                except McpError:
                    # It declared dialogs and refuses one: treat it as a client without them.
                    choice = "later"
                if choice == "later":
                    return False
                await _carry_out(choice, pending)
                await self._wait_until(pending.decided, end, pending, client)
        finally:
            for task in (dialog, settled):
                task.cancel()
            await asyncio.gather(dialog, settled, return_exceptions=True)
        if pending.decided.is_set():
            await self._wait_until(pending.finished, end, pending, client)
        return pending.finished.is_set()

    async def _wait(
        self, event: asyncio.Event, seconds: float, pending: PendingCall, client: ClientChannel
    ) -> None:
        """Wait for the event or until the time is over, with progress notifications meanwhile."""
        await self._wait_until(event, asyncio.get_running_loop().time() + seconds, pending, client)

    async def _wait_until(
        self, event: asyncio.Event, end: float, pending: PendingCall, client: ClientChannel
    ) -> None:
        token = progress_token(pending.call.params)
        loop = asyncio.get_running_loop()
        ticks = 0
        while not event.is_set() and (left := end - loop.time()) > 0:
            try:
                async with asyncio.timeout(min(left, PROGRESS_SECONDS)):
                    await event.wait()
            except TimeoutError:
                # Once it is decided, progress is the tool's own.
                if token is not None and not pending.decided.is_set():
                    ticks += 1
                    progress = {"progressToken": token, "progress": ticks * _TICK, "message": pending.note}
                    client.notify("notifications/progress", progress)

    # Input

    async def collect_input(self, call: BackendCall, result: JsonObject, client: ClientChannel) -> JsonObject:
        """The result of a call whose tool requests input; raises McpError."""
        if client.era == "stateless":
            self._check_capabilities(result, client)
            return result
        for _ in range(MAX_INPUT_ROUNDS):
            requests: Json = result.get("inputRequests")
            responses: JsonObject = {}
            refusals: dict[str, McpError] = {}
            for key, request in (requests if isinstance(requests, dict) else {}).items():
                try:
                    responses[key] = await self._ask_client(request, client)
                except McpError as fault:
                    refusals[key] = fault
                    responses[key] = _refusal_of(request)
            params = {**call.params, "inputResponses": responses}
            params.pop("requestState", None)
            if isinstance(result.get("requestState"), str):
                params["requestState"] = result["requestState"]
            # Also after a refusal: the tool waits for an answer, and decides what to do without the input.
            repetition = BackendCall(call.method, params, call.progress, call.log)
            try:
                answer = await self._backend.perform(repetition)
            except McpError as fault:
                if fault.code == INVALID_PARAMS and None in responses.values():
                    # A server of the stateless era: it knows no refusals.
                    return _input_refused(call, refusals)
                raise
            if isinstance(answer, PendingCall):
                return await self.wait_for_decision(answer, client)
            if not is_input_required(answer):
                return answer
            result = answer
            if refusals.keys() & (result.get("inputRequests") or {}).keys():
                # It takes the refusal for no answer and requests the same again.
                return _input_refused(call, refusals)
        raise McpError(NOT_DONE, f"gave up: the tool requested input {MAX_INPUT_ROUNDS} times")

    async def _ask_client(self, request: Json, client: ClientChannel) -> JsonObject:
        method = request.get("method") if isinstance(request, dict) else None
        params: Json = request.get("params", {}) if isinstance(request, dict) else None
        if not isinstance(method, str) or not isinstance(params, dict):
            raise McpError(NOT_DONE, "the tool requested input in a form that is not MCP")
        missing = missing_capability(client.capabilities, method, params)
        if missing is not None:
            raise McpError(NOT_DONE, f"this client cannot be asked: it did not declare {_names_of(missing)}")
        return await client.ask(method, params)

    def _check_capabilities(self, result: JsonObject, client: ClientChannel) -> None:
        """MCP: send no input request that the client has not declared support for."""
        requests: Json = result.get("inputRequests")
        missing: JsonObject = {}
        for request in (requests if isinstance(requests, dict) else {}).values():
            if isinstance(request, dict) and isinstance(request.get("method"), str):
                params = request.get("params")
                missing_here = missing_capability(
                    client.capabilities, request["method"], params if isinstance(params, dict) else {}
                )
                missing |= missing_here or {}
        if missing:
            text = f"Missing required client capability: {_names_of(missing)}"
            raise McpError(MISSING_CAPABILITY, text, {"requiredCapabilities": missing})


def _dialog(pending: PendingCall) -> JsonObject:
    note = f"{pending.note[:1].upper()}{pending.note[1:]}."
    choices = {"wait": "Wait", "withdraw": "Withdraw it"}
    if pending.decide is not None:
        # Never the default: nobody approves by pressing Enter.
        choices = {"wait": "Wait for others", "approve": "Approve it", "reject": "Reject it"} | choices
    # No `mode`: a form is what it is without one, and clients before 2025-11-25 do not know the word.
    return {
        "message": "\n".join(part for part in (pending.headline, pending.details(), note) if part),
        "requestedSchema": {
            "type": "object",
            "properties": {
                "decision": {
                    "type": "string",
                    "title": "Wait for the decision?" if pending.decide is None else "What shall be done?",
                    "enum": list(choices),
                    "enumNames": list(choices.values()),
                    "default": "wait",
                }
            },
            "required": ["decision"],
        },
    }


def _choice(answer: JsonObject) -> str:
    """`wait`, `withdraw`, `approve`, `reject`, or `later` if the person closed the dialog."""
    content: Json = answer.get("content")
    if answer.get("action") != "accept" or not isinstance(content, dict):
        return "later"
    decision = content.get("decision")
    return decision if decision in ("withdraw", "approve", "reject") else "wait"


async def _carry_out(choice: str, pending: PendingCall) -> None:
    """Do what the person chose in a dialog."""
    match choice:
        case "withdraw":
            await pending.withdraw("withdrawn by the person at the client")
        case "approve" | "reject" if pending.decide is not None and not pending.decided.is_set():
            await pending.decide(choice)


def _is_same_call(call: BackendCall, request: RpcRequest) -> bool:
    """Whether a repeated request is the pending call: nobody gets the result of another."""
    return call.method == request.method and all(
        strict_json.encode(call.params.get(name)) == strict_json.encode(request.params.get(name))
        for name in ("name", "arguments", "uri")
    )


def _refusal_of(request: Json) -> Json:
    """What a tool gets in place of input. None refuses the request; only a dialog has a word for that."""
    is_dialog = isinstance(request, dict) and request.get("method") == "elicitation/create"
    return {"action": "cancel"} if is_dialog else None


def _input_refused(call: BackendCall, refusals: dict[str, McpError]) -> JsonObject:
    fault = next(iter(refusals.values()))
    text = f"The tool needs input from the person at the client, and did not get it: {fault.message}"
    if call.method == "tools/call":
        return text_result(text, is_error=True)
    raise McpError(NOT_DONE, text, fault.data)


def _names_of(missing: JsonObject) -> str:
    return ", ".join(
        f"{name}.{next(iter(inner))}" if inner else name for name, inner in sorted(missing.items())
    )


async def _withdraw(pending: PendingCall, reason: str) -> None:
    # Shielded: we are being cancelled, and the withdrawal has to go out all the same.
    await asyncio.shield(asyncio.ensure_future(pending.withdraw(reason)))


# How long the clients of one server wait for an answer, as far as they have shown it.
#
# Some clients give up after a few seconds and say nothing: the request stays open here, and nobody reads its
# answer. They show it by repeating the call. From then on they are answered in time, and an answer that comes
# later than they wait does not count as told.


class ClientTimeout:
    """The shortest time that a client was seen to wait; without end until one was seen to give up."""

    def __init__(self) -> None:
        self._seconds = math.inf

    def learn(self, waited_seconds: float) -> None:
        """A client has given up after this, or after less."""
        if waited_seconds >= _AT_ONCE_SECONDS:
            self._seconds = min(self._seconds, waited_seconds)

    @property
    def answer_seconds(self) -> float:
        """How long a request may take."""
        return self._seconds * _MARGIN

    def is_over(self, waited_seconds: float) -> bool:
        """Whether a client that has waited this long has probably given up."""
        return waited_seconds > self._seconds
