"""Histories for tests: proposals, and people who decide on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import count

import orjson

from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import DialectName, Envelope
from moot.protocol.operation import Json
from moot.protocol.proposal_life import RejectionRecord
from moot.trust.history.proposal_case import Case, case_of
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.learning.learner import add_rule
from moot.trust.learning.suggestion import Suggestion
from moot.trust.rules.rule import Rule, RuleOrigin

# 2026-01-05, a Monday, 10:00 UTC.
START = 1_767_607_200.0
HOUR = 3600.0
_numbers = count()


def call(
    arguments: dict[str, Json] | None = None,
    *,
    tool: str = "write_file",
    proposer: str = "agent",
    to: Sequence[str] = ("files",),
    at: float = START,
    params: dict[str, Json] | None = None,
) -> Case:
    """A proposal to call a tool."""
    body = {"name": tool, "arguments": arguments or {}} if params is None else params
    payload = {"method": "tools/call", "params": body}
    return case_of(f"p{next(_numbers)}", proposer, tuple(to), payload, at=at)


def decided(case: Case, *, approved: bool, by: str = "alice", rule: str | None = None) -> HistoryProposal:
    """What a person (or a rule) made of it, half a minute later."""
    at = case.at + 30.0
    decision, id = HistoryProposal.of(case), f"{case.id}-d"
    if approved:
        decision.fulfil(id, by, case.to, at)
    else:
        decision.reject(RejectionRecord(id, by, "unsafe", at))
    if rule is not None:
        decision.rules[id] = rule
    return decision


def history(
    arguments: Iterable[dict[str, Json]],
    approved: Callable[[dict[str, Json]], bool] = lambda _: True,
    *,
    tool: str = "write_file",
    proposer: str = "agent",
    every: float = 60.0,
) -> list[HistoryProposal]:
    """One decision for each of these arguments, a minute apart unless told otherwise."""
    return [
        decided(
            call(given, tool=tool, proposer=proposer, at=START + every * number), approved=approved(given)
        )
        for number, given in enumerate(arguments)
    ]


def envelope_of(
    kind: str,
    id: str,
    sender: str,
    payload: dict[str, Json] | None = None,
    *,
    to: Sequence[str] = (),
    about: Sequence[str] = (),
    context: str | None = None,
    dialect: DialectName = "mew",
) -> Envelope:
    """An envelope as it is heard in a space."""
    fields: dict[str, Json] = {
        "protocol": DIALECTS[dialect].protocol,
        "id": id,
        "ts": "2026-01-05T10:00:00.000Z",
        "from": sender,
        "kind": kind,
        "payload": payload or {},
    }
    if to:
        fields["to"] = list(to)
    if about:
        fields["correlation_id"] = list(about) if dialect == "mew" else about[0]
    if context is not None:
        fields["context"] = context
    return DIALECTS[dialect].decode(orjson.dumps(fields))


def proposal(id: str, sender: str = "agent", path: str = "/srv/a.txt") -> Envelope:
    params = {"name": "write_file", "arguments": {"path": path}}
    return envelope_of("mcp/proposal", id, sender, {"method": "tools/call", "params": params}, to=["files"])


def fulfilment(id: str, of: str, sender: str = "alice", path: str = "/srv/a.txt", **more: Json) -> Envelope:
    params = {"name": "write_file", "arguments": {"path": path}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    about = [of, *more.pop("also", [])]
    return envelope_of("mcp/request", id, sender, body, to=["files"], about=about, **more)


def accept(rules: Sequence[Rule], suggestion: Suggestion, *, by: str, now: float) -> tuple[Rule, ...]:
    """The rules after somebody accepted a suggestion as it is."""
    taken = replace(suggestion.rule, origin=RuleOrigin(suggestion.id, by, now))
    return add_rule(rules, taken, replaces=suggestion.replaces)
