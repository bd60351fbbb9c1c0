"""Which rules of quorum, budgets and effects a call has to be compared with.

Most rules name tools in plain words, and cannot be about a call of another tool. So these are found by name.
Everything else is asked of each call: rules without a plain name, and all rules where a call's tool cannot be
told (`quorum` says what matches then).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from moot.protocol.large_content import CONTENT_KEY
from moot.protocol.operation import Payload
from moot.protocol.patterns import Capability
from moot.protocol.patterns.globs import MAX_TEXT
from moot.protocol.patterns.rights import literals_of
from moot.space.config import Quorum, SpaceBudget, SpaceConfig, SpaceEffect

_Rule = TypeVar("_Rule")
_TOOL: Final = ("params", "name")


class CallRules(Generic[_Rule]):
    """Rules about calls, in their order."""

    __slots__ = ("_by_tool", "_others", "_rules")

    def __init__(self, rules: Sequence[_Rule], calls_of: Callable[[_Rule], Capability]) -> None:
        self._rules = tuple(rules)
        self._by_tool: dict[str, list[int]] = {}
        self._others: list[int] = []
        for at, rule in enumerate(self._rules):
            tools = _tools_of(calls_of(rule))
            for tool in tools or ():
                self._by_tool.setdefault(tool, []).append(at)
            if tools is None:
                self._others.append(at)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def about(self, payload: Payload) -> Sequence[_Rule]:
        """Those that a call may match, and as few others as a look at its tool leaves."""
        tool = _tool_of(payload)
        if tool is None:
            return self._rules
        named = self._by_tool.get(tool)
        places = sorted(self._others + named) if named else self._others
        return [self._rules[at] for at in places]


class SpaceRules:
    """All rules about calls of one configuration."""

    __slots__ = ("approvals", "budgets", "effects", "may_ask_first")

    def __init__(self, config: SpaceConfig) -> None:
        # Whether some call may need a proposal although its sender may make it (D-103).
        asks = config.quorum or config.passkeys.required or config.separation_of_duties
        self.may_ask_first = bool(asks)
        self.approvals: CallRules[Quorum] = CallRules(config.approval_rules, lambda rule: rule.pattern)
        self.budgets: CallRules[SpaceBudget] = CallRules(config.budgets, lambda budget: budget.calls)
        self.effects: CallRules[SpaceEffect] = CallRules(config.effects, lambda effect: effect.calls)


def _tools_of(calls: Capability) -> set[str] | None:
    """The tools outside of which nothing matches; None: the rule may be about any."""
    tools: set[str] = set()
    for pattern in calls.patterns:
        named = None if pattern.payload is None else dict(literals_of(pattern.payload, ())).get(_TOOL)
        if named is None:
            return None
        tools |= named
    return tools


def _tool_of(payload: Payload) -> str | None:
    """The tool that a call names for everybody to see."""
    params = payload.get("params")
    if CONTENT_KEY in payload or not isinstance(params, dict) or CONTENT_KEY in params:
        return None
    name = params.get("name")
    return name if isinstance(name, str) and len(name) <= MAX_TEXT else None
