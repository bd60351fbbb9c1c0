"""Cedar policies beside the rules: `cedar: [policies.cedar]` in the rules file, files of the same folder.

Each proposal is one request, and each policy is presented as a rule: listed, limited, stopped and explained
as one. `forbid` rejects before every rule, `permit` approves after them all, and what nobody permits asks.

    principal   Member::"agent"                       who proposes it
    action      Action::"tools/call/write_file"       in Action::"tools/call"; other methods by their name
    resource    Host::"files"                         who would do it
    context     method, tool, arguments, origins: {asks, why}

`origins.asks` is whether a value that steers the call came from nobody trusted, or nobody knows. In the
arguments a list is a set, a number with a point a decimal, and what is null is left out. What cannot be
said so (other numbers, several hosts, names that Cedar's JSON reserves), a policy that fails, and a file that
cannot be read ask: nobody knows what a `forbid` would have said.

    @id("reports") @limits("{count: 20, per: 1h}")
    permit(principal == Member::"agent", action, resource == Host::"files")
    when { context.arguments.path like "reports/*" && !context.origins.asks };
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from moot.config.strict_yaml import read_yaml
from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.trust.history.proposal_case import WITH_ARGUMENTS, Case
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_json import rule_of_json

PREFIX: Final = "cedar."
MAX_FILE_BYTES: Final = 1 << 20
# Deeper arguments are not looked at.
MAX_DEPTH: Final = 16
_ANNOTATIONS: Final = ("id", "limits", "observe")
# With these keys Cedar's JSON says something else than a record.
_RESERVED: Final = frozenset({"__entity", "__extn", "__expr"})
_LONGS: Final = range(-(1 << 63), 1 << 63)
_DECIMAL_DIGITS: Final = 4


@dataclass(frozen=True, slots=True)
class CedarVerdict:
    """The policies that apply to a proposal, or why nobody knows."""

    forbids: tuple[Rule, ...] = ()
    permits: tuple[Rule, ...] = ()
    fault: str | None = None


NO_POLICIES: Final = CedarVerdict()


def is_policy(rule: Rule) -> bool:
    """Whether a rule is a Cedar policy."""
    return rule.name.startswith(PREFIX)


class CedarPolicies:
    """The policies of some files; `rules` has one rule for each, in their order."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        """Raises UsageError with the file and what is wrong with it."""
        try:
            import cedarpy
        except ImportError:
            raise UsageError("Cedar policies need an extra: pip install 'moot[cedar]'") from None
        self._cedar: Any = cedarpy
        texts = [_read(folder / name) for name in names]
        self.rules = tuple(
            rule for name, text in zip(names, texts, strict=True) for rule in self._rules_of(name, text)
        )
        found = [rule.name for rule in self.rules]
        for name in found:
            if found.count(name) > 1:
                raise UsageError(f"the id {name.removeprefix(PREFIX)!r} is that of two policies")
        # Together, since Cedar counts policies over all of them.
        self._policies = cedarpy.PolicySet.from_str("\n".join(texts))
        # Where a forbid applies, Cedar tells of no permit: of those that only observe it is asked once more.
        self._deciding = self._policies
        observed = {f"policy{at}" for at, rule in enumerate(self.rules) if rule.observe}
        if observed:
            whole = json.loads(cedarpy.policies_to_json_str("\n".join(texts)))
            for id in observed:
                if whole["staticPolicies"][id]["effect"] == "forbid":
                    del whole["staticPolicies"][id]
            self._deciding = cedarpy.PolicySet.from_json_str(json.dumps(whole))

    def _rules_of(self, file: str, text: str) -> list[Rule]:
        try:
            read = json.loads(self._cedar.policies_to_json_str(text))
        except ValueError as fault:
            raise UsageError(f"{file}: {fault}") from None
        if read.get("templates"):
            raise UsageError(f"{file}: templates (?principal, ?resource) say nothing by themselves here")
        policies = read["staticPolicies"]
        return [_rule_of(file, at, policies[f"policy{at}"]) for at in range(len(policies))]

    def judge(self, case: Case, untrusted: str | None) -> CedarVerdict:
        """Which policies apply; `untrusted` is why the origins of its values ask."""
        try:
            request, entities = request_of(case, untrusted)
            found = self._cedar.is_authorized(request, self._policies, entities)
            forbids = tuple(rule for rule in self._determining(found) if rule.decision == "reject")
            if forbids and all(rule.observe for rule in forbids):
                found = self._cedar.is_authorized(request, self._deciding, entities)
        except ValueError as fault:
            return CedarVerdict(fault=f"Cedar cannot be asked about this call: {fault}")
        # Whatever else failed: one `forbid` is enough.
        if any(not rule.observe for rule in forbids):
            return CedarVerdict(forbids=forbids)
        if found.diagnostics.errors:
            return CedarVerdict(forbids, fault=f"a Cedar policy failed: {found.diagnostics.errors[0]}")
        return CedarVerdict(forbids, permits=self._determining(found))

    def _determining(self, found: Any) -> tuple[Rule, ...]:
        ids = {int(id.removeprefix("policy")) for id in found.diagnostics.reasons}
        return tuple(rule for at, rule in enumerate(self.rules) if at in ids)


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise UsageError(f"{file.name} is larger than {MAX_FILE_BYTES} bytes")
        return data.decode()
    except (OSError, UnicodeDecodeError) as fault:
        raise UsageError(f"{file.name} cannot be read: {fault}") from None


def _rule_of(file: str, at: int, policy: dict[str, Json]) -> Rule:
    notes = policy.get("annotations") or {}
    where = f"{file}: policy {at + 1}"
    for key in notes:
        if key not in _ANNOTATIONS:
            raise UsageError(
                f"{where} has @{key}; known are {', '.join(f'@{each}' for each in _ANNOTATIONS)}"
            )
    id = notes.get("id") or f"{Path(file).stem}-{at + 1}"
    effect = policy["effect"]
    # Another text is another rule, which people are told of.
    digest = hashlib.sha256(json.dumps(policy, sort_keys=True).encode()).hexdigest()[:8]
    fields: dict[str, Json] = {
        "name": f"{PREFIX}{id}",
        "decision": "approve" if effect == "permit" else "reject",
        "words": f"Cedar policy {id} of {file} ({effect}, {digest})",
        "extra_arguments": True,
        "observe": read_yaml(notes.get("observe") or "false"),
    }
    if notes.get("limits"):
        fields["limits"] = read_yaml(notes["limits"])
    return rule_of_json(fields, where)


def request_of(case: Case, untrusted: str | None) -> tuple[dict[str, Json], list[Json]]:
    """The request and the entities of a proposal; raises ValueError if they cannot say what it is."""
    if len(case.to) != 1:
        raise ValueError("it is not for one host")
    if case.unexpected_fields:
        raise ValueError(f"it has {case.unexpected_fields[0]}")
    method: Json = {"type": "Action", "id": case.method}
    named = case.method in WITH_ARGUMENTS
    action: Json = {"type": "Action", "id": f"{case.method}/{case.tool}"} if named else method
    request: dict[str, Json] = {
        "principal": {"type": "Member", "id": _text(case.proposer)},
        "action": action,
        "resource": {"type": "Host", "id": _text(case.to[0])},
        "context": {
            "method": _text(case.method),
            "tool": _text(case.tool or ""),
            "arguments": _value(dict(case.arguments), MAX_DEPTH),
            "origins": {"asks": untrusted is not None, "why": _text(untrusted or "")},
        },
    }
    entities: list[Json] = [{"uid": method, "attrs": {}, "parents": []}]
    if named:
        entities.append({"uid": action, "attrs": {}, "parents": [method]})
    return request, entities


def _text(text: str) -> str:
    text.encode()  # What UTF-8 cannot say raises UnicodeEncodeError, a ValueError.
    return text


def _value(value: Json, depth: int) -> Json:
    match value:
        case bool():
            return value
        case str():
            return _text(value)
        case int() if value in _LONGS:
            return value
        case float() if math.isfinite(value) and abs(value) < 1e14:
            decimal = f"{value:.{_DECIMAL_DIGITS}f}"
            if float(decimal) == value:
                return {"__extn": {"fn": "decimal", "arg": decimal}}
        case list() if depth:
            return [_value(each, depth - 1) for each in value if each is not None]
        case dict() if depth:
            if reserved := _RESERVED & value.keys():
                raise ValueError(f"it has an argument {min(reserved)}")
            return {_text(key): _value(each, depth - 1) for key, each in value.items() if each is not None}
    raise ValueError(f"it has a value that Cedar has no form for: {str(value)[:40]!r}")
