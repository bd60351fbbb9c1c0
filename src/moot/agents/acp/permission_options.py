"""Which of the options of a permission request are used: once, and never for ever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moot.agents.acp.agent_profiles import AgentProfile


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
