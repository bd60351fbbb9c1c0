"""One permission request of an agent, until it is decided and its tool call is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from moot.agents.acp.agent_profiles import AgentProfile
from moot.agents.acp.json_rpc import IncomingCall
from moot.agents.acp.shown_call import ShownCall
from moot.agents.acp.tool_calls import AgentToolCall
from moot.participant.decisions.own_proposal import Proposal
from moot.protocol.operation import Json

CANCELLED: Final[dict[str, Json]] = {"outcome": {"outcome": "cancelled"}}
OTHER_CALL: Final = "WARNING: the agent reports another call than the one that was approved."


@dataclass(frozen=True, slots=True)
class PermissionOptions:
    """Which options of a request are used; None: there is none that may be."""

    allow: str | None
    reject: str | None


def choose_options(options: Any, profile: AgentProfile) -> PermissionOptions:
    """The option that allows once, and the one that rejects once; never one that is for ever.

    An id that is used twice names nothing: the agent could take it for either.
    """
    given = [each for each in options if isinstance(each, dict)] if isinstance(options, list) else []
    ids = [each.get("optionId") for each in given]

    def of(kind: str) -> list[str]:
        return [
            id
            for each in given
            if each.get("kind") == kind and isinstance(id := each.get("optionId"), str) and ids.count(id) == 1
        ]

    allow = of("allow_once")
    known = [id for id in profile.allow_once_ids if id in allow]
    return PermissionOptions(next(iter([*known, *allow]), None), next(iter(of("reject_once")), None))


@dataclass(frozen=True, slots=True)
class PermissionRejection:
    """Why a permission was not given, for the next prompt."""

    what: str
    by: str
    reason: str
    explanation: str = ""


@dataclass(slots=True, eq=False)
class OpenPermission:
    """One request of the agent, until it is decided and its tool call is over."""

    call: AgentToolCall
    request: IncomingCall
    options: PermissionOptions
    # What people see, and the same as the parameters of the request.
    shown: ShownCall
    params: dict[str, Json]
    # What came of the tool call: the result for whoever fulfilled it, None if that is not known.
    finished: asyncio.Future[dict[str, Json] | None]
    is_released: bool = False
    # The agent has asked for another thing under the same id, so what it reports is not about this one alone.
    is_replaced: bool = False
    # How often the agent has changed it since it asked.
    changes: int = 0
    # Why it can be released no more.
    closed: str = ""
    proposals: list[Proposal] = field(default_factory=list)

    @property
    def is_as_shown(self) -> bool:
        """Whether the agent reports what was shown, as far as its report is about that alone."""
        return self.is_replaced or self.shown.allows_report(self.call)

    def result(self, clean: Callable[[str], str], max_chars: int) -> dict[str, Json]:
        """What came of it, for whoever has approved it."""
        call = self.call
        what = self.shown.what if self.is_replaced else call.describe()
        lines = [f"The agent reports: {what} ({call.status})", *call.outcome_lines()]
        if not self.is_as_shown:
            lines.insert(0, OTHER_CALL)
        is_error = call.status == "failed" or not self.is_as_shown
        return _text_result(clean("\n".join(lines))[:max_chars], is_error=is_error)


def selected(option: str | None) -> dict[str, Json]:
    """The answer to the agent: this option of its own."""
    return {"outcome": {"outcome": "selected", "optionId": option}}


def not_done(why: str) -> dict[str, Json]:
    """The answer to an approval that releases nothing."""
    return _text_result(f"Not done, and the approval was not used: {why}.", is_error=True)


def _text_result(text: str, *, is_error: bool) -> dict[str, Json]:
    return {"content": [{"type": "text", "text": text}], "isError": is_error}
