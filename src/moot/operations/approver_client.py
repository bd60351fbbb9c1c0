"""What a person asks and tells the approver of a space: the same in the shell, the terminal and a plan."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from moot.errors import MootError, TimedOut, UsageError
from moot.operations.operation import OperationResult
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json

if TYPE_CHECKING:
    from moot.participant import JoinedSpace, SentEnvelope

# The approver answers at once unless it is busy learning.
ANSWER_SECONDS: Final = 5.0
_DONE: Final = ("stopped", "suspended", "removed")
_UNCONFIRMED: Final = "not confirmed: no approver is in this space; a later one only obeys a stop"


class ApproverClient:
    """Asks the approver `name` and tells it what was decided; without one (None) it only tells everybody.

    `command` begins the lines that say what to call next: `moot rules ` or `/`.
    """

    def __init__(self, space: JoinedSpace, name: str | None, *, command: str = "moot rules ") -> None:
        self._space = space
        self._name = name
        self._command = command

    async def ask(
        self, tool: str, arguments: dict[str, Json] | None = None, *, timeout_seconds: float | None = None
    ) -> dict[str, Any]:
        """What a tool of the approver answers; raises MootError."""
        space, name, given = self._space, self._name, arguments or {}
        if name is None:
            raise UsageError("no approver is in this space: `moot rules run` starts one")
        if not space.may_request(name, "tools/call", {"name": tool, "arguments": given}):
            raise UsageError(f"you have no permission to call it (mcp/request to {name})")
        answer = (await space.call(name, tool, given, timeout_seconds=timeout_seconds)).structured
        if not isinstance(answer, dict):
            raise UsageError(f"{name} is not an approver: its answer to {tool} is not understood")
        return answer

    async def tell(
        self, kind: str, payload: dict[str, Json], *, to: str = "", about: str = ""
    ) -> tuple[SentEnvelope, Envelope | None]:
        """Say it to all; what the approver answered, None only where there is none.

        Raises MootError if it refuses, and TimedOut if nothing comes.
        """
        sent, answer = await self._send_and_wait(kind, payload, to, about, self._name)
        self._check_agreed(answer)
        if answer is None and self._name is not None:
            raise TimedOut(
                f"{self._name} has not answered within {ANSWER_SECONDS:g} s; `moot rules list` shows"
                " whether it acted"
            )
        return sent, answer

    def _check_agreed(self, answer: Envelope | None) -> None:
        if answer is not None and answer.kind == "chat":
            raise MootError(f"{self._name}: {answer.payload.get('text')}")

    async def _send_and_wait(
        self, kind: str, payload: dict[str, Json], to: str, about: str, name: str | None
    ) -> tuple[SentEnvelope, Envelope | None]:
        messages = self._space.envelopes()
        try:
            sent = await self._space.send(kind, payload, to=to or (), about=about or (), confirm=True)
            if name is None:
                return sent, None
            async with asyncio.timeout(ANSWER_SECONDS):
                async for item in messages:
                    if not isinstance(item, Envelope) or item.sender != name:
                        continue
                    if sent.id in item.correlation_id:
                        return sent, item
            return sent, None
        except TimeoutError:
            return sent, None
        finally:
            await messages.aclose()

    # Suggestions

    async def accept(
        self, id: str, rule: Json = None, *, reason: str | None = None, to: str = "", about: str = ""
    ) -> OperationResult:
        """Make a suggestion a rule; `rule` is less than it."""
        payload = {"suggestion": id, **_given(rule=rule, reason=reason)}
        sent, answer = await self.tell("trust/accept", payload, to=to, about=about)
        body = {} if answer is None else answer.payload
        made = body.get("rule")
        name = made.get("name") if isinstance(made, dict) else None
        value = {"id": sent.id, "suggestion_id": id, "rule": name, "grant_id": None}
        if answer is not None and answer.kind == "trust/suggestion":
            by, people = body.get("accepted_by") or [], body.get("accepting_people")
            text = (
                f"accepted {id} as {len(by)} of {people} people; it decides nothing until another person"
                " accepts it, too"
            )
            return OperationResult({**value, "accepted_by": by, "accepting_people": people}, [text])
        holds = f"rule {name} decides from now on" if name else "`moot rules list` shows whether it holds"
        return self._done(value, f"accepted {id}; {holds}")

    async def grant(
        self, suggestion: Json, id: str, *, reason: str | None = None, about: str = ""
    ) -> OperationResult:
        """The person grants the permission; the approver is only informed."""
        grant = suggestion.get("grant")
        if not isinstance(grant, dict):
            raise UsageError(
                f"it cannot be granted: {suggestion.get('no_grant')}. Accept it as a rule instead"
            )
        who = str(grant.get("participant"))
        given = await self._space.admin.grant(who, [grant.get("capability")], reason=f"suggestion {id}")
        payload = {"suggestion": id, "granted": True, "grant": given.id, **_given(reason=reason)}
        sent, _ = await self.tell("trust/accept", payload, about=about)
        revoke = "/revoke" if self._command == "/" else "moot member revoke"
        text = f"granted: {grant.get('words')}. Take it back with: {revoke} {who} --grant {given.id}"
        return self._done({"id": sent.id, "suggestion_id": id, "rule": None, "grant_id": given.id}, text)

    async def dismiss(
        self, id: str, *, reason: str | None = None, about: str = "", listens: bool = False
    ) -> OperationResult:
        """A dismissal is carried out in silence; who could not look `listens` for a word that it was not."""
        payload = {"suggestion": id, **_given(reason=reason)}
        name = self._name if listens else None
        sent, answer = await self._send_and_wait("trust/dismiss", payload, "", about, name)
        self._check_agreed(answer)
        return OperationResult({"id": sent.id, "kind": "trust/dismiss"}, [f"dismissed {id}"])

    # Rules

    async def stop(self, rule: str | None, *, about: str = "", reason: str | None = None) -> OperationResult:
        """Done only when the approver says that it is: it writes a stop to disk, then confirms it."""
        payload = _given(reason=reason, rule=rule)
        sent, answer = await self._send_and_wait("trust/stop", payload, "", about, self._name)
        unconfirmed = f"not confirmed: the stop {sent.id} was sent, but"
        if self._name is None:
            raise MootError(
                f"{unconfirmed} no approver is here. One that comes back obeys it; if yours has another"
                " name, `moot rules stop --approver NAME` repeats it"
            )
        self._check_agreed(answer)
        if answer is None or answer.payload.get("state") not in _DONE:
            raise TimedOut(
                f"{unconfirmed} {self._name} has not confirmed it within {ANSWER_SECONDS:g} s. Repeat it,"
                f" look at `moot rules list`, or remove the approver: moot member kick {self._name}"
            )
        found = answer.payload.get("rule")
        name = found.get("name") if isinstance(found, dict) else found
        now = "forgotten" if answer.payload.get("state") == "removed" else "suspended"
        text = f"rule {name} is {now}" if name else "all rules are stopped; people decide everything"
        if about and not name:
            text = f"no rule is known behind {about}, so {text}"
        return OperationResult({"id": sent.id, "kind": "trust/stop"}, [text])

    async def resume(self, rule: str | None) -> OperationResult:
        what = "rules decide" if rule is None else f"rule {rule} decides"
        payload: dict[str, Json] = {"resume": True} if rule is None else {"lift": rule}
        half = f"{what} nothing until another person resumes, too"
        return await self._change(payload, f"{what} again", f"resumed as {{}} people; {half}")

    async def observe(self, rule: str, *, on: bool) -> OperationResult:
        half = f"wanted by {{}} people; rule {rule} only observes until another does"
        done = f"rule {rule} {'only observes' if on else 'decides'}"
        return await self._change({"observe": rule, "on": on}, done, half)

    async def remove(self, rule: str, *, reason: str | None = None) -> OperationResult:
        return await self._change({"remove": rule, **_given(reason=reason)}, f"rule {rule} is gone")

    async def _change(self, payload: dict[str, Json], done: str, half: str = "") -> OperationResult:
        sent, answer = await self.tell("trust/accept", payload)
        value: dict[str, Json] = {"id": sent.id, "kind": "trust/accept"}
        by = None if answer is None else answer.payload.get("resumed_by")
        if answer is not None and isinstance(by, list):
            people = answer.payload.get("accepting_people")
            value |= {"resumed_by": by, "accepting_people": people}
            done = half.format(f"{len(by)} of {people}")
        return self._done(value, done)

    # Reviews

    async def review(self, rule: str | None, confirm: str | None) -> OperationResult:
        """What rules decided and nobody has reviewed; or that it was right, up to the one that is named."""
        found = (await self.ask("trust_reviews")).get("reviews")
        shown: list[dict[str, Json]] = [
            {"rule": each.get("rule"), **decision}
            for each in objects_in(found)
            if rule in (None, each.get("rule"))
            for decision in objects_in(each.get("decisions"))
        ]
        ids = [str(each.get("id")) for each in shown]
        if confirm is not None:
            return await self._confirm(confirm, ids)
        if not shown:
            return OperationResult([], ["there is nothing to review"])
        only = f" {rule}" if rule else ""
        stop = "/stop-rules" if self._command == "/" else "moot rules stop"
        lines = [_review_line(each) for each in shown]
        lines.append(f"all of this was right: {self._command}review{only} --confirm {ids[-1]}")
        return OperationResult(shown, [*lines, f"one of it was wrong: {stop} --about ID"])

    async def _confirm(self, last: str, ids: Sequence[str]) -> OperationResult:
        matching = [last] if last in ids else [id for id in ids if id.startswith(last)]
        if len(matching) != 1:
            raise UsageError(f"{last} does not wait for a review: `{self._command}review` shows what does")
        # What a rule decided since that was shown stays unreviewed.
        reviewed: list[Json] = list(ids[: ids.index(matching[0]) + 1])
        sent, _ = await self.tell("trust/accept", {"reviewed": reviewed})
        text = f"reviewed {len(reviewed)} {'decision' if len(reviewed) == 1 else 'decisions'}"
        return self._done({"id": sent.id, "kind": "trust/accept", "reviewed": reviewed}, text)

    def _done(self, value: Json, text: str) -> OperationResult:
        """What was done; without an approver, what was only said."""
        return OperationResult(value, [text] if self._name is not None else [text, _UNCONFIRMED])


def _review_line(decision: Json) -> str:
    """A decision of a rule that nobody has reviewed: what was called, with all of its arguments."""
    arguments = json.dumps(decision.get("arguments", {}), ensure_ascii=False)
    call = f"{decision.get('tool') or ''} {arguments}".strip()
    return f"{decision.get('id')}  {decision['rule']}, proposed by {decision.get('proposer', '?')}: {call}"


def _given(**members: Json) -> dict[str, Json]:
    return {name: value for name, value in members.items() if value}


def objects_in(value: Json) -> list[Json]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
