"""The operator's MCP server: a person's assistant lists and explains proposals, and the person decides.

    moot_pending, moot_explain   read; what members wrote is marked as data
    moot_reject, moot_stop       at once: they only prevent
    moot_approve                 asks the person, then makes the proposed request in their name

A model writes the arguments of a call and nothing else. So an approval is never an argument: it is the answer
to a dialog that the client shows (a form with the exact call), or it is made in the console. A client that
can show no form, and a call that is too long for one, get the address of the proposal's page.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

from moot import __version__
from moot.bridges.operator.confirmations import Confirmations, decision_form
from moot.bridges.operator.operator_settings import OperatorSettings
from moot.bridges.operator.operator_tools import (
    APPROVE_TOOL,
    EXPLAIN_TOOL,
    MAX_REASON_CHARS,
    PENDING_TOOL,
    list_operator_tools,
    operator_tool,
)
from moot.bridges.operator.proposal_text import (
    WARNING,
    call_text,
    data_line,
    describe,
    json_line,
    one_line,
    question_text,
    result_text,
)
from moot.errors import McpError, MootError, UsageError, VoteCounted
from moot.mcp.downstream.backend import (
    BackendCall,
    PendingCall,
    ServerDescription,
    ToolsOnlyBackend,
    text_result,
)
from moot.mcp.downstream.client_channel import supports_forms
from moot.mcp.eras import CLIENT_CAPABILITIES_KEY, JsonObject, OfferKind, input_required
from moot.operations.again import again_offer, payload_of, remember_call
from moot.operations.text.call_text import describe_deciders, proposal_link, rule_appliers, who_can_approve
from moot.participant import JoinedSpace
from moot.participant.decisions.seen_proposal import SeenProposal
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json
from moot.protocol.origin_report import AgainOffer
from moot.protocol.patterns import overlaps, read_capability
from moot.protocol.rpc_codes import INVALID_PARAMS

# How long an approved call may take.
CALL_SECONDS: Final = 3_600.0
# How long the answer to a dialog counts, and how many dialogs may be open.
CONFIRMATION_SECONDS: Final = 900.0
MAX_CONFIRMATIONS: Final = 100
# A call that is longer than this cannot be read in a dialog: it is decided in the console.
MAX_DIALOG_CHARS: Final = 4_000
# Of how many proposals a list shows something.
MAX_LISTED: Final = 50
# One part of the arguments, a definition or a result.
MAX_PART_CHARS: Final = 30_000
# How long the host is waited for, when its description of a tool is asked for.
DESCRIBE_SECONDS: Final = 5.0

# What a member needs at least one of to decide anything.
_DECIDING: Final = (
    {"kind": "mcp/request", "payload": {"method": "tools/call"}},
    {"kind": "mcp/request", "payload": {"method": "resources/read"}},
    {"kind": "mcp/request", "payload": {"method": "prompts/get"}},
    {"kind": "moot/approve"},
)
_KEY: Final = "moot_confirmation"


class _Unusable(Exception):
    """An argument that does not work; the text says what to do."""


def check_may_decide(space: JoinedSpace) -> None:
    """Raises UsageError unless the member that joined can decide on some proposal."""
    needed = [read_capability(each) for each in _DECIDING]
    if not any(overlaps(right, each) for right in space.rights.capabilities for each in needed):
        raise UsageError(
            f"--operator: {space.me} may not decide on proposals (no capability allows it to make a proposed "
            "request or to vote); use the token of a person who may, not the one of an agent"
        )


class OperatorBackend(ToolsOnlyBackend):
    """What one person may decide, for their assistant."""

    def __init__(
        self, space: JoinedSpace, settings: OperatorSettings | None = None, *, space_name: str = ""
    ) -> None:
        """Raises UsageError if the member may decide nothing."""
        check_may_decide(space)
        self._space = space
        self._settings = settings or OperatorSettings()
        self._space_name = space_name
        self._confirmations = Confirmations(MAX_CONFIRMATIONS, CONFIRMATION_SECONDS)
        # Approved here, and not answered yet.
        self._running: dict[str, asyncio.Task[None]] = {}
        self._answers: LatestDict[str, str] = LatestDict(MAX_CONFIRMATIONS)
        self.about = ServerDescription(
            {"name": "moot-operator", "title": f"Moot operator {space_name}".strip(), "version": __version__},
            f"You help {space.me}, a person, to decide what agents in the Moot space {space_name!r} may do. "
            f"{PENDING_TOOL} lists what waits. Summarise it truthfully and name the risks. Your person "
            f"decides: {APPROVE_TOOL} asks them, and you cannot answer for them. {WARNING}",
        )

    # What the server asks of a backend

    async def offers(self, kind: OfferKind) -> list[JsonObject]:
        return list_operator_tools() if kind == "tools" else []

    def tool(self, name: str) -> JsonObject | None:
        return operator_tool(name)

    async def perform(self, call: BackendCall) -> JsonObject | PendingCall:
        if call.method != "tools/call":
            raise McpError(INVALID_PARAMS, "this server has tools only")
        name, arguments = call.params["name"], call.params.get("arguments") or {}
        try:
            match name:
                case "moot_pending":
                    return await self._list()
                case "moot_explain":
                    return await self._explain(arguments)
                case "moot_approve":
                    return await self._approve(call, arguments)
                case "moot_reject":
                    return await self._reject(arguments)
                case "moot_stop":
                    return await self._stop(arguments)
        except _Unusable as fault:
            return text_result(f"{name}: {fault}", is_error=True)
        except McpError:
            raise
        except MootError as fault:
            return text_result(f"{name} failed: {one_line(str(fault))}", is_error=True)
        raise McpError(INVALID_PARAMS, f"Unknown tool: {name[:128]}")

    # Reading

    async def _list(self) -> JsonObject:
        await self._refresh()
        all_open = self._space.proposals.open()
        mine = [seen for seen in all_open if not self._is_excluded(seen)]
        shown = [describe(seen) for seen in mine[:MAX_LISTED]]
        lines = [f"{len(mine)} proposals wait for a decision.", *([WARNING] if shown else [])]
        lines += map(data_line, shown)
        if len(mine) > len(shown):
            lines.append(f"{len(mine) - len(shown)} more are not shown: decide on these first.")
        if excluded := len(all_open) - len(mine):
            lines.append(
                f"{excluded} more were proposed by {self._space.me} or its assistant: others decide on those."
            )
        budgets = [one_line(each.text) for each in self._space.proposals.budgets]
        lines += [f"Budget {text}." for text in budgets]
        if not self._space.proposals.known:
            lines.append("The gateway did not tell whether there are more: ask again.")
        facts: JsonObject = {
            "proposals": shown,
            **({"budgets": budgets} if budgets else {}),
            "is_complete": self._space.proposals.known and len(shown) == len(mine),
            "untrusted": True,
        }
        return text_result("\n".join(lines), structuredContent=facts)

    async def _explain(self, arguments: JsonObject) -> JsonObject:
        seen = await self._find(arguments)
        offset = arguments.get("offset", 0)
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            raise _Unusable("`offset` is a number from 0")
        size = MAX_PART_CHARS
        text = json_line(seen.params)
        part = text[offset : offset + size]
        facts = describe(seen)
        facts.pop("params_cut", None)
        facts |= {"params": part, "params_characters": len(text), "outcome": seen.outcome}
        if seen.fulfilled_by is not None:
            facts["approved_by"] = seen.fulfilled_by
        lines = [f"{call_text(seen)}: {self._describe_state(seen)}", WARNING, data_line(facts)]
        if offset + size < len(text):
            facts["next_offset"] = offset + size
            lines.append(f"The params go on: call again with offset {offset + size}.")
        if offset == 0:
            tool = await self._ask_for_definition(seen)
            lines.append(
                "How the host describes its tool is not known."
                if tool is None
                else f"How the host describes its tool:\n{result_text(tool, size)}"
            )
            if seen.status == "pending":
                lines.append(self._describe_deciders(seen))
            answer = self._answers.get(seen.id)
            if answer is not None and seen.status == "fulfilled":
                lines.append(answer)
            elif seen.result is not None:
                lines.append(f"It answered:\n{result_text(seen.result, size)}")
        return text_result("\n".join(lines), structuredContent=facts | {"untrusted": True})

    async def _ask_for_definition(self, seen: SeenProposal) -> JsonObject | None:
        if seen.method != "tools/call" or len(seen.to) != 1 or seen.to[0] not in self._space.roster:
            return None
        with suppress(MootError, TimeoutError):
            async with asyncio.timeout(DESCRIBE_SECONDS):
                tools = await self._space.list_all(seen.to[0], "tools")
            name = seen.params.get("name")
            return next((tool for tool in tools if tool.get("name") == name), None)
        return None

    def _describe_state(self, seen: SeenProposal) -> str:
        if seen.status != "pending":
            return f"{one_line(seen.state_text)}."
        votes = f" It has {seen.vote_text}." if seen.vote_text else ""
        return f"it waits for a decision.{votes}" + (" It was rejected, too." if seen.rejections else "")

    def _describe_deciders(self, seen: SeenProposal) -> str:
        host = seen.to[0] if seen.to else ""
        names = who_can_approve(self._space, host, seen.method, seen.params)
        if self._space.may_request(seen.to, seen.method, seen.params):
            names = [f"{self._space.me} (your person)", *names]
        rules = rule_appliers(self._space)
        return describe_deciders(list(map(one_line, names)), self._link(seen), seen.id, rules)

    # Approving

    async def _approve(self, call: BackendCall, arguments: JsonObject) -> JsonObject:
        seen = await self._find(arguments)
        if (running := self._running.get(seen.id)) is not None:
            return await self._wait_for_answer(seen, running)
        seen.check_open()
        if not self._needs_confirmation(seen):
            return await self._carry_out(seen, "without confirmation, as configured")
        state = call.params.get("requestState")
        if isinstance(state, str):
            return await self._take_confirmation(state, call, seen)
        return self._ask_person(call, seen)

    def _ask_person(self, call: BackendCall, seen: SeenProposal) -> JsonObject:
        meta = call.params.get("_meta")
        declared: Json = meta.get(CLIENT_CAPABILITIES_KEY) if isinstance(meta, dict) else None
        capabilities: JsonObject = declared if isinstance(declared, dict) else {}
        elicitation: Json = capabilities.get("elicitation")
        text = question_text(seen, self._space.me, self._space.name)
        is_form = supports_forms(capabilities) and len(text) <= MAX_DIALOG_CHARS
        if is_form:
            params: JsonObject = {
                "message": text,
                "requestedSchema": decision_form(again_offer(self._space, seen)),
            }
        elif isinstance(elicitation, dict) and "url" in elicitation and (link := self._link(seen)):
            message = f"Open the console to decide on {call_text(seen)}."
            params = {"mode": "url", "message": message, "url": link, "elicitationId": f"moot-{seen.id}"}
        else:
            return self._refer_to_console(seen)
        question = {"method": "elicitation/create", "params": params}
        return input_required({_KEY: question}, self._confirmations.ask(seen, is_form=is_form))

    async def _take_confirmation(self, state: str, call: BackendCall, seen: SeenProposal) -> JsonObject:
        responses: Json = call.params.get("inputResponses")
        answer: Json = responses.get(_KEY) if isinstance(responses, dict) else None
        asked = self._confirmations.use_up(state, seen)
        if asked is None or not isinstance(answer, dict):
            raise _Unusable("the confirmation is not, or no longer, valid; nothing was approved. Call again")
        content: Json = answer.get("content")
        decision = content.get("decision") if isinstance(content, dict) else None
        if answer.get("action") != "accept":
            return text_result(f"NOT APPROVED: your person declined to decide now. {self._still(seen)}")
        if asked == "form":
            if decision in ("approve", "again"):
                offer = again_offer(self._space, seen) if decision == "again" else None
                return await self._carry_out(seen, "confirmed by your person", offer)
            if decision == "reject":
                await self._space.reject(seen, "disagree")
                return text_result(f"REJECTED by your person: {call_text(seen)}.")
            return text_result(f"NOT APPROVED: your person left it pending. {self._still(seen)}")
        # They went to the console: it is decided there or not at all.
        await _wait_until_decided(seen, self._settings.answer_seconds)
        if seen.status == "pending":
            return self._refer_to_console(seen)
        return text_result(f"{call_text(seen)}: {self._describe_state(seen)}")

    async def _carry_out(self, seen: SeenProposal, how: str, offer: AgainOffer | None = None) -> JsonObject:
        """Approve it in the person's name; the call goes on if nobody waits for its answer."""
        # Only one of two confirmations comes here first: the other waits for the same answer.
        running = self._running.get(seen.id)
        if running is None:
            self._answers.pop(seen.id, None)
            running = self._space.spawn(self._fulfil(seen, how, offer))
            if running is None:
                raise _Unusable("the space has ended; nothing was approved")
            self._running[seen.id] = running
            # Not at the end of `_fulfil`: a task that is ended before its first step never gets there.
            running.add_done_callback(lambda _: self._running.pop(seen.id, None))
        return await self._wait_for_answer(seen, running)

    async def _fulfil(self, seen: SeenProposal, how: str, offer: AgainOffer | None) -> None:
        what = call_text(seen)
        try:
            outcome = await self._space.approve(seen, timeout_seconds=CALL_SECONDS)
        except VoteCounted as voted:
            text = f"VOTED ({how}), not carried out yet: {what}: {one_line(str(voted))}."
        except McpError as fault:
            text = f"APPROVED ({how}), and {what} failed:\n{data_line({'error': fault.message})}"
        except MootError as fault:
            # Whether it ran is only said where it is known.
            done = "APPROVED" if seen.status == "fulfilled" else "NOT APPROVED"
            text = f"{done}: {what}: {one_line(str(fault))}"
        else:
            ended = "reported a failure" if outcome.is_error else "was done"
            shown = result_text(outcome.result, MAX_PART_CHARS)
            text = f"APPROVED ({how}): {what} {ended}. {one_line(outcome.host)} answered:\n{shown}"
            if offer is not None:
                try:
                    text += f"\n{await remember_call(self._space, payload_of(seen, offer))}"
                except MootError as fault:
                    text += f"\n{one_line(str(fault))}"
        self._answers[seen.id] = text

    async def _wait_for_answer(self, seen: SeenProposal, running: asyncio.Task[None]) -> JsonObject:
        await asyncio.wait({running}, timeout=self._settings.answer_seconds)
        text = self._answers.get(seen.id)
        if text is None and running.done() and seen.status != "fulfilled":
            return text_result(
                f"NOT KNOWN whether {call_text(seen)} was approved: this was interrupted, as when the space "
                "ends. Look there before you do the same in another way.",
                is_error=True,
            )
        if text is None:
            return text_result(
                f"APPROVED, and not finished yet: {call_text(seen)}. {EXPLAIN_TOOL} tells what became of it; "
                "do not do the same in another way meanwhile."
            )
        is_refused = text.startswith("NOT APPROVED")
        return text_result(f"{text}\n{WARNING}" if "\nDATA " in text else text, is_error=is_refused)

    def _needs_confirmation(self, seen: SeenProposal) -> bool:
        proposer = self._name_of(seen.proposer)
        return not any(each.matches(seen, proposer) for each in self._settings.unconfirmed)

    # Rejecting and stopping

    async def _reject(self, arguments: JsonObject) -> JsonObject:
        seen = await self._find(arguments)
        reason = _text(arguments, "reason") or "disagree"
        await self._space.reject(seen, reason, explanation=_text(arguments, "explanation"))
        return text_result(
            f"REJECTED: {call_text(seen)}. Everyone sees the reason; others can still approve."
        )

    async def _stop(self, arguments: JsonObject) -> JsonObject:
        reason = _text(arguments, "reason") or f"stopped by {self._space.me}"
        await self._space.admin.pause(reason=reason)
        return text_result(
            "STOPPED: every other member is paused and can start nothing more; calls that run already go on. "
            "Your person resumes them in the console, or in a shell with `moot member resume NAME`."
        )

    # Finding

    async def _refresh(self) -> None:
        if self._space.state != "joined":
            raise _Unusable("the gateway cannot be reached now, so what is pending is not known; call again")
        await self._space.refresh_proposals()
        await self._space.recall_origins()

    async def _find(self, arguments: JsonObject) -> SeenProposal:
        id = _text(arguments, "proposal_id")
        if id is None:
            raise _Unusable(f"`proposal_id` is the id of a proposal; {PENDING_TOOL} lists them")
        seen = self._space.proposals.get(id)
        if seen is None or seen.uncertain or self._space.state != "joined":
            await self._refresh()
            seen = self._space.proposals.get(id)
        if seen is None:
            raise _Unusable(f"no proposal has this id, or it is too long ago; {PENDING_TOOL} lists them")
        if self._is_excluded(seen):
            raise _Unusable("whoever proposed it does not decide on it here: others do, in the console")
        return seen

    def _is_excluded(self, seen: SeenProposal) -> bool:
        """Whether the assistant itself made it: in its person's name, or as a member of its own."""
        names = {seen.proposer, self._name_of(seen.proposer)}
        return not names.isdisjoint({self._space.me, self._space.name, *self._settings.assistant_members})

    def _name_of(self, id: str) -> str:
        member = self._space.roster.get(id)
        return id if member is None else member.name

    # What is told

    def _link(self, seen: SeenProposal) -> str:
        return proposal_link(self._settings.console, self._space_name, seen.id)

    def _still(self, seen: SeenProposal) -> str:
        return f"{call_text(seen)} is still pending. Do not ask again unless your person wants it."

    def _refer_to_console(self, seen: SeenProposal) -> JsonObject:
        link = self._link(seen)
        console = (
            f"in the console at {self._settings.console}" if self._settings.console else "in the console"
        )
        where = f"at {link}" if link else f"{console}, or in a shell with `moot approve {seen.id}`"
        text = (
            f"NOT APPROVED: your person has to confirm it themselves, {where}. Tell them, and what it would "
            f"do. {self._still(seen)}"
        )
        return text_result(
            text, structuredContent={"status": seen.status, "proposal_id": seen.id, "link": link}
        )


async def _wait_until_decided(seen: SeenProposal, seconds: float) -> None:
    changed = asyncio.Event()
    seen.watchers.append(changed.set)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while seen.status == "pending" and not seen.rejections:
                    await changed.wait()
                    changed.clear()
    finally:
        seen.watchers.remove(changed.set)


def _text(arguments: JsonObject, name: str) -> str | None:
    value: Any = arguments.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_REASON_CHARS:
        raise _Unusable(f"`{name}` is a text of 1 to {MAX_REASON_CHARS} characters")
    return value
