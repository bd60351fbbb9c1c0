"""The rows of C9 and C10, in words of our own, each with what checks it or why nothing does here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from moot.operations.aisvs import agent_checks as agents
from moot.operations.aisvs import mcp_checks as mcp
from moot.operations.aisvs.deployment import Deployment, Verdict
from moot.protocol.operation import Json

Check = Callable[[Deployment], Verdict]


@dataclass(frozen=True, slots=True)
class Row:
    id: str
    level: int
    words: str
    check: Check | Verdict


def _no(why: str) -> Verdict:
    return Verdict("not_met", why, "nothing that a configuration could say")


def _elsewhere(why: str) -> Verdict:
    return Verdict("not_checked", why)


_TESTS: Final = "holds in every configuration, so nothing is asked here; the tests of Moot show it"

ROWS: Final = (
    Row("9.1.1", 1, "quotas and time-outs of tools", agents.bounded_tools),
    Row("9.1.2", 1, "budgets of executions", agents.budgets),
    Row("9.1.3", 2, "one switch stops all agents", agents.stops),
    Row("9.2.1", 1, "people approve what matters before it runs", agents.approval),
    Row("9.2.2", 2, "whoever approves sees the whole call", _elsewhere(_TESTS)),
    Row("9.2.3", 2, "actions are classed by whether they can be undone", agents.undo_classes),
    Row("9.2.4", 2, "those classes decide what needs approval", agents.undo_decides),
    Row("9.2.5", 2, "agents do not change themselves", agents.self_change),
    Row("9.2.6", 2, "a model reviews beside the policy", agents.second_review),
    Row(
        "9.2.7",
        2,
        "that review cannot be talked round",
        _elsewhere("it can only say no or ask; what it believes depends on its model"),
    ),
    Row("9.2.8", 3, "approvals are signed over the call", agents.signed_approvals),
    Row("9.2.9", 3, "keys of approvals are out of agents' reach", agents.isolated_keys),
    Row(
        "9.2.10",
        3,
        "a chain is approved by its worst step",
        _no("each call is decided by itself, or a plan as a whole"),
    ),
    Row("9.3.1", 1, "tools run in boxes", agents.boxes),
    Row("9.3.2", 1, "results fit their schemas", _elsewhere("results are passed on as servers give them")),
    Row("9.3.3", 2, "tools declare what they need", agents.boxes),
    Row("9.3.4", 2, "what is declared is enforced", _elsewhere(_TESTS)),
    Row("9.3.5", 2, "what reads untrusted data cannot make calls", agents.untrusted_values),
    Row(
        "9.3.6",
        2,
        "untrusted results are kept apart from agents",
        _no("agents read results as tools give them; origins only decide who approves what follows"),
    ),
    Row(
        "9.3.7",
        2,
        "what agents name is on a list before it is used",
        _elsewhere("tools are those of members; what a tool itself fetches, its box says"),
    ),
    Row(
        "9.3.8",
        3,
        "violations contain a tool by themselves",
        _elsewhere("rules are suspended and changed tools withheld by themselves; members are not"),
    ),
    Row("9.4.1", 2, "every agent has an identity", agents.identities),
    Row("9.4.2", 2, "every step is bound to a signed record", agents.signed_steps),
    Row("9.4.3", 3, "credentials change on a schedule", agents.rotation),
    Row("9.4.4", 3, "kept state is protected", agents.state),
    Row("9.5.1", 2, "rights name tools and values", agents.narrow_rights),
    Row("9.5.2", 2, "calls for a person use that person's account", agents.on_behalf),
    Row("9.5.3", 2, "no model decides about rights", _elsewhere(_TESTS)),
    Row("9.5.4", 2, "agents do not see secrets", agents.secrets),
    Row("9.5.5", 2, "handing on work needs a right", agents.delegation),
    Row("9.5.6", 3, "rights are looked at for every action", _elsewhere(_TESTS)),
    Row("9.6.1", 1, "a person can stop it at once", agents.stops),
    Row("9.6.2", 2, "what nobody approves in time does not run", agents.approval_time),
    Row("9.6.3", 3, "the switch is beside the agents' channel", agents.out_of_band),
    Row("10.1.1", 1, "servers come from known sources, verified", mcp.sources),
    Row("10.1.2", 2, "only listed servers", mcp.allow_list),
    Row("10.1.3", 2, "started servers run in boxes", mcp.sandboxes),
    Row("10.2.1", 1, "a token for every request", mcp.token_per_request),
    Row("10.2.2", 1, "claims of tokens are checked", mcp.token_claims),
    Row(
        "10.2.3",
        1,
        "servers keep no tokens",
        _elsewhere("hashes of tokens are kept; a bridge keeps its own sign-ins, for itself alone"),
    ),
    Row("10.2.4", 2, "lists show what one may use", _elsewhere(_TESTS)),
    Row("10.2.5", 2, "rights bind arguments, too", mcp.argument_rights),
    Row("10.2.6", 2, "nothing of a session is left", _elsewhere(_TESTS)),
    Row("10.2.7", 2, "clients' tokens are not passed on", _elsewhere(_TESTS)),
    Row("10.3.1", 1, "remote transport is encrypted", mcp.encrypted),
    Row(
        "10.3.2",
        1,
        "stdio is for this machine",
        _elsewhere("whether this machine is controlled, only you know"),
    ),
    Row("10.3.3", 2, "Origin and Host are both checked", mcp.origins),
    Row("10.3.4", 2, "old versions are refused", _elsewhere("versions from 2024-11-05 on are spoken")),
    Row(
        "10.3.5",
        3,
        "tokens are bound to their sender",
        _no("Moot's tokens are bearer tokens; client certificates are asked for beside them"),
    ),
    Row(
        "10.4.1",
        1,
        "lists and results are checked before models read them",
        _elsewhere("definitions are checked; results are passed on"),
    ),
    Row(
        "10.4.2",
        1,
        "what models read is searched for injections",
        _no("hidden characters are shown and definitions screened; words that steer are not looked for"),
    ),
    Row(
        "10.4.3",
        1,
        "unknown and too large parameters are refused",
        _elsewhere("sizes are; parameters are checked by the server that has the tool"),
    ),
    Row(
        "10.4.4",
        2,
        "servers check schemas strictly",
        _elsewhere("a bridged server is somebody else's program"),
    ),
    Row("10.4.5", 2, "sizes are limited on every transport", mcp.sizes),
    Row(
        "10.4.6",
        2,
        "answers are signed against replay",
        _no("answers are in a signed journal, but carry no signature of their server"),
    ),
    Row(
        "10.4.7",
        2,
        "people consent before a server is installed",
        _elsewhere("whoever writes the configuration does"),
    ),
    Row("10.4.8", 3, "changed tools need consent", mcp.pins),
)


def verify(deployment: Deployment) -> Iterator[tuple[Row, Verdict]]:
    """Every row and how it stands."""
    for row in ROWS:
        yield row, row.check if isinstance(row.check, Verdict) else row.check(deployment)


def as_json(found: list[tuple[Row, Verdict]], deployment: Deployment) -> dict[str, Json]:
    counts = Counter(verdict.status for _, verdict in found)
    return {
        "standard": "OWASP AISVS 1.0, C9 and C10",
        "counts": dict(counts),
        "rows": [
            {"id": row.id, "level": row.level, "about": row.words, "status": one.status, "why": one.why}
            | ({"change": one.change} if one.change else {})
            for row, one in found
        ],
        "overseers": {space: deployment.overseers(space) for space in deployment.spaces},
        "without_anybody": list(deployment.free_callers()),
        "old_tokens": list(deployment.old_tokens()),
    }
