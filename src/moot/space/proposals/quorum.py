"""Which calls need several approvals, and whom that does not bind (D-103).

A capability that does not match gives nothing; a quorum that does not match binds nobody. So what cannot be
judged (a value that the gateway keeps and the message only names, a text that is too long to be compared, a
search that would take too long) matches here. A call to several members, or to everybody, is bound if it
would be with any of them alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from moot.protocol.call_risks import is_examined_whole, risks_of
from moot.protocol.kinds import NOTIFICATION_PREFIX
from moot.protocol.large_content import CONTENT_KEY
from moot.protocol.operation import Json, Payload
from moot.protocol.patterns import Capability
from moot.protocol.patterns.globs import MAX_TEXT
from moot.protocol.patterns.jsonpath import MAX_VISITS, MessageVisits
from moot.protocol.patterns.pattern import Fields, Node, OneOf, Pattern, Search
from moot.space.config import Name, Quorum
from moot.space.proposals.call_rules import CallRules
from moot.space.proposals.offer_owners import LIST_METHODS

# What is there is no call of it: without its list nobody could propose a tool.
UNBOUND_METHODS: Final = LIST_METHODS | {"initialize", "ping"}


class NeededApprovals(NamedTuple):
    """How many have to approve a call, and who may make it without them."""

    approvals: int = 0
    exempt: tuple[Name, ...] = ()
    # Whether each of them is confirmed with a passkey.
    passkey: bool = False


_NONE: Final = NeededApprovals()


def find_needed_approvals(rules: CallRules[Quorum], payload: Payload, to: Sequence[str]) -> NeededApprovals:
    """The largest number of the rules that match (0145); exempt is who is so in all of them."""
    if not rules:
        return _NONE
    method = payload.get("method")
    if isinstance(method, str) and (method in UNBOUND_METHODS or method.startswith(NOTIFICATION_PREFIX)):
        return _NONE
    matching = [
        rule
        for rule in rules.about(payload)
        if binds_call(rule.pattern, payload, to)
        and (rule.risk is None or _may_risk(rule.risk, payload))
        and (rule.undo is None or any(binds_call(each, payload, to) for each in rule.undo_calls))
    ]
    if not matching:
        return _NONE
    exempt = [name for name in matching[0].exempt if all(name in rule.exempt for rule in matching)]
    return NeededApprovals(
        max(rule.approvals_needed for rule in matching),
        tuple(exempt),
        any(rule.passkey for rule in matching),
    )


def _may_risk(risk: Literal["bad", "warn"], payload: Payload) -> bool:
    """Whether something in a call is as serious as this, or cannot be seen."""
    params = payload.get("params")
    if not isinstance(params, dict):
        return False
    arguments = params.get("arguments", params)
    if _is_partly_hidden(params) or not is_examined_whole(arguments):
        return True
    found = risks_of(str(params.get("name", "")), arguments)
    return any(each.severity == "bad" or each.severity == risk for each in found)


def binds_call(calls: Capability, payload: Payload, to: Sequence[str]) -> bool:
    """Whether a call is, or may be, one of these."""
    # Here and below without a generator: a space may have many rules that are asked of each call.
    for pattern in calls.patterns:  # noqa: SIM110
        if _binds(pattern, payload, to):
            return True
    return False


def _binds(pattern: Pattern, payload: Payload, to: Sequence[str]) -> bool:
    if pattern.to is not None and to and not any(g.matches(name) for g in pattern.to for name in to):
        return False
    return pattern.payload is None or _may_match(pattern.payload, payload)


def _may_match(node: Node, value: Json) -> bool:
    """Whether the node matches the value, or cannot tell."""
    if isinstance(value, str) and not isinstance(node, (OneOf, Fields)):
        return node.matches(value) or len(value) > MAX_TEXT
    if isinstance(value, dict) and CONTENT_KEY in value:
        return True
    if isinstance(node, OneOf):
        return any(_may_match(each, value) for each in node.alternatives)
    if isinstance(node, Fields):
        if not isinstance(value, dict):
            return False
        for name, inner in node.literal:
            if name not in value or not _may_match(inner, value[name]):
                return False
        return not node.searches or all(_search_may_find(search, value) for search in node.searches)
    return node.matches(value) or _is_partly_hidden(value)


def _search_may_find(search: Search, value: dict[str, Json]) -> bool:
    visits = MessageVisits(MAX_VISITS)
    return search.matches(value, visits) or visits.left <= 0 or _is_partly_hidden(value)


def _is_partly_hidden(value: Json) -> bool:
    """Whether something in it is not there, or is too long to be compared."""
    level = [value]
    while level:
        each = level.pop()
        if isinstance(each, dict):
            if CONTENT_KEY in each:
                return True
            level += each.values()
        elif isinstance(each, list):
            level += each
        elif isinstance(each, str) and len(each) > MAX_TEXT:
            return True
    return False
