"""Bringing questions to a client: what a tool wants to know, and decisions that take their time.

A tool may need input. The stateless client gets the question as it is, the handshake client is asked by
requests of our own and the call is repeated with the answers.

A call may need somebody's decision. It waits `decision_seconds` first. Then the client learns of it by the
best way that it has, and never by an error or by hanging:

    tasks       it polls; the call's answer comes when it is there
    mrtr        its person is asked: wait or withdraw? Each "wait" waits again, `dialog_rounds` times
    elicitation the same in the handshake era; the dialog goes away when the decision comes
    pending     the call answers that it is pending, under which handle, and how to ask again
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

from moot.errors import McpError
from moot.mcp.downstream.backend import Backend, BackendCall, OfferCounts, PendingCall, text_result
from moot.mcp.downstream.client_channel import ClientChannel, lacks, takes_forms, takes_tasks
from moot.mcp.downstream.limits import McpServerLimits
from moot.mcp.downstream.rpc import MISSING_CAPABILITY, NOT_DONE, RpcRequest
from moot.mcp.downstream.task_extension import McpTasks
from moot.mcp.eras import (
    INVALID_PARAMS,
    JsonObject,
    input_required,
    is_input_required,
    progress_token,
)
from moot.protocol import strict_json
from moot.protocol.operation import Json

_KEY: Final = "moot_decision"
# Below whatever a tool reports later: progress may only grow, and tools begin at 0 or 1.
_TICK: Final = 1e-6


class ClientRequests:
    """How one face talks back to its clients. `state_prefix` marks request states that are ours."""

    def __init__(
        self,
        backend: Backend,
        limits: McpServerLimits,
        counts: OfferCounts,
        tasks: McpTasks,
        state_prefix: str,
    ) -> None:
        self._backend = backend
        self._limits = limits
        self._counts = counts
        self._tasks = tasks
        self._prefix = state_prefix

    # Decisions

    async def decided(self, pending: PendingCall, client: ClientChannel) -> JsonObject:
        """What the client gets for a call that somebody has to decide on; raises McpError."""
        return await self._waited(pending, client, 0)

    def resumed(self, request: RpcRequest, client: ClientChannel) -> Awaitable[JsonObject] | None:
        """If this request answers "wait or withdraw?": what comes of it. None: an ordinary request."""
        state = request.params.get("requestState")
        if not isinstance(state, str) or not state.startswith(self._prefix):
            return None
        handle, _, round = state.removeprefix(self._prefix).rpartition(".")
        pending = self._backend.pending(handle)
        if pending is None or not round.isdecimal() or not _same(pending.call, request):
            raise McpError(INVALID_PARAMS, "this request state is not, or no longer, known for this call")
        return self._resumed(pending, request.params.get("inputResponses"), client, int(round))

    async def _resumed(
        self, pending: PendingCall, responses: Json, client: ClientChannel, round: int
    ) -> JsonObject:
        answer = responses.get(_KEY) if isinstance(responses, dict) else None
        if isinstance(answer, dict) and not pending.finished.is_set():
            choice = _choice(answer)
            if choice == "withdraw":
                await pending.withdraw("withdrawn by the person at the client")
            elif choice == "later":
                self._counts.channel("pending")
                return pending.pending_result()
        return await self._waited(pending, client, round)

    async def _waited(self, pending: PendingCall, client: ClientChannel, round: int) -> JsonObject:
        try:
            return await self._decided(pending, client, round)
        except asyncio.CancelledError:
            # Nobody waits for it any more: whoever would decide should not have to.
            await _withdrawn(pending, "cancelled by the client")
            raise

    async def _decided(self, pending: PendingCall, client: ClientChannel, round: int) -> JsonObject:
        await self._wait(pending.decided, self._limits.decision_seconds, pending, client)
        if pending.decided.is_set():
            await pending.finished.wait()
            return await self._finished(pending, client)
        if client.era == "stateless":
            if takes_tasks(client.capabilities) and pending.call.method == "tools/call":
                self._counts.channel("tasks")
                return self._tasks.make(pending)
            if takes_forms(client.capabilities) and round < self._limits.dialog_rounds:
                self._counts.channel("mrtr")
                question = {"method": "elicitation/create", "params": _dialog(pending)}
                return input_required({_KEY: question}, f"{self._prefix}{pending.handle}.{round + 1}")
        elif takes_forms(client.capabilities):
            self._counts.channel("elicitation")
            if await self._elicited(pending, client):
                return await self._finished(pending, client)
        self._counts.channel("pending")
        return pending.pending_result()

    async def _finished(self, pending: PendingCall, client: ClientChannel) -> JsonObject:
        result = pending.result()
        return await self.with_input(pending.call, result, client) if is_input_required(result) else result

    async def _elicited(self, pending: PendingCall, client: ClientChannel) -> bool:
        """Show the dialog for as long as nobody has decided; whether the call is finished then."""
        dialog = asyncio.ensure_future(client.ask("elicitation/create", _dialog(pending)))
        settled = asyncio.ensure_future(pending.decided.wait())
        try:
            await asyncio.wait({dialog, settled}, return_when=asyncio.FIRST_COMPLETED)
            if not settled.done():
                try:
                    choice = _choice(dialog.result())
                except McpError:
                    # A client that says it can and then cannot: as if it had not said so.
                    choice = "later"
                if choice == "later":
                    return False
                if choice == "withdraw":
                    await pending.withdraw("withdrawn by the person at the client")
                await self._wait(pending.decided, self._limits.patience_seconds, pending, client)
        finally:
            for task in (dialog, settled):
                task.cancel()
            await asyncio.gather(dialog, settled, return_exceptions=True)
        if not pending.decided.is_set():
            return False
        await pending.finished.wait()
        return True

    async def _wait(
        self, event: asyncio.Event, seconds: float, pending: PendingCall, client: ClientChannel
    ) -> None:
        """Until the event or the time, telling a client that wants progress that we are still here."""
        token = progress_token(pending.call.params)
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        ticks = 0
        while not event.is_set() and (left := end - loop.time()) > 0:
            try:
                async with asyncio.timeout(min(left, self._limits.progress_seconds)):
                    await event.wait()
            except TimeoutError:
                if token is not None:
                    ticks += 1
                    said = {"progressToken": token, "progress": ticks * _TICK, "message": pending.note}
                    client.notify("notifications/progress", said)

    # Input

    async def with_input(self, call: BackendCall, result: JsonObject, client: ClientChannel) -> JsonObject:
        """The answer to a call whose tool wants to know something; raises McpError."""
        if client.era == "stateless":
            self._check_askable(result, client)
            return result
        for _ in range(self._limits.input_rounds):
            requests: Json = result.get("inputRequests")
            responses: JsonObject = {}
            for key, request in (requests if isinstance(requests, dict) else {}).items():
                try:
                    responses[key] = await self._asked(request, client)
                except McpError as fault:
                    return _cannot_ask(call, fault)
            params = {**call.params, "inputResponses": responses}
            params.pop("requestState", None)
            if isinstance(result.get("requestState"), str):
                params["requestState"] = result["requestState"]
            answer = await self._backend.perform(BackendCall(call.method, params, call.progress, call.log))
            if isinstance(answer, PendingCall):
                return await self.decided(answer, client)
            if not is_input_required(answer):
                return answer
            result = answer
        raise McpError(NOT_DONE, f"gave up: asked for input {self._limits.input_rounds} times")

    async def _asked(self, request: Json, client: ClientChannel) -> JsonObject:
        method = request.get("method") if isinstance(request, dict) else None
        params: Json = request.get("params", {}) if isinstance(request, dict) else None
        if not isinstance(method, str) or not isinstance(params, dict):
            raise McpError(NOT_DONE, "the tool asked for input in a form that is not MCP")
        missing = lacks(client.capabilities, method, params)
        if missing is not None:
            raise McpError(NOT_DONE, f"this client cannot be asked: it did not declare {_words(missing)}")
        return await client.ask(method, params)

    def _check_askable(self, result: JsonObject, client: ClientChannel) -> None:
        """MCP: no input request that the client has not declared to take."""
        requests: Json = result.get("inputRequests")
        missing: JsonObject = {}
        for request in (requests if isinstance(requests, dict) else {}).values():
            if isinstance(request, dict) and isinstance(request.get("method"), str):
                params = request.get("params")
                lacking = lacks(
                    client.capabilities, request["method"], params if isinstance(params, dict) else {}
                )
                missing |= lacking or {}
        if missing:
            text = f"Missing required client capability: {_words(missing)}"
            raise McpError(MISSING_CAPABILITY, text, {"requiredCapabilities": missing})


def _dialog(pending: PendingCall) -> JsonObject:
    # No `mode`: a form is what it is without one, and clients before 2025-11-25 do not know the word.
    return {
        "message": f"{pending.headline}\n{pending.note[:1].upper()}{pending.note[1:]}.",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "decision": {
                    "type": "string",
                    "title": "Wait for the decision?",
                    "enum": ["wait", "withdraw"],
                    "enumNames": ["Wait", "Withdraw it"],
                    "default": "wait",
                }
            },
            "required": ["decision"],
        },
    }


def _choice(answer: JsonObject) -> str:
    """`wait`, `withdraw`, or `later` when the person closed the dialog without deciding."""
    content: Json = answer.get("content")
    if answer.get("action") != "accept" or not isinstance(content, dict):
        return "later"
    return "withdraw" if content.get("decision") == "withdraw" else "wait"


def _same(call: BackendCall, request: RpcRequest) -> bool:
    """Whether a repeated request is for what is pending: nobody gets another call's answer."""
    return call.method == request.method and all(
        strict_json.encode(call.params.get(name)) == strict_json.encode(request.params.get(name))
        for name in ("name", "arguments", "uri")
    )


def _cannot_ask(call: BackendCall, fault: McpError) -> JsonObject:
    text = f"The tool needs input from the person at the client, and did not get it: {fault.message}"
    if call.method == "tools/call":
        return text_result(text, is_error=True)
    raise McpError(NOT_DONE, text, fault.data)


def _words(missing: JsonObject) -> str:
    return ", ".join(
        f"{name}.{next(iter(inner))}" if inner else name for name, inner in sorted(missing.items())
    )


async def _withdrawn(pending: PendingCall, reason: str) -> None:
    # Shielded: we are being cancelled, and the withdrawal has to go out all the same.
    await asyncio.shield(asyncio.ensure_future(pending.withdraw(reason)))
