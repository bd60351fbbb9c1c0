"""The approver that a command of `moot rules` talks to, and the suggestion that it names."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from moot.errors import MootError, UsageError

if TYPE_CHECKING:
    from moot.operations.approver_client import ApproverClient
    from moot.participant import JoinedSpace

# `s-` and four characters more.
_LEAST_PREFIX: Final = 6


def approver_of(
    space: JoinedSpace, options: argparse.Namespace, *, must_be_here: bool = True
) -> ApproverClient:
    """Whom `--approver` names; raises MootError if it is not here."""
    from moot.operations.approver_client import ApproverClient

    is_here = options.approver in space.roster
    if must_be_here and not is_here:
        raise MootError(
            f"no member {options.approver} is here, so nothing was done. `moot up` starts the one in"
            " moot.yaml; `moot rules run --help` shows its lines. --approver NAME names another one"
        )
    return ApproverClient(space, options.approver if is_here else None)


async def ask_approver(
    space: JoinedSpace, options: argparse.Namespace, tool: str, arguments: dict[str, Any] | None = None
) -> dict[str, Any]:
    return await approver_of(space, options).ask(tool, arguments)


async def find_suggestion(space: JoinedSpace, options: argparse.Namespace) -> dict[str, Any] | None:
    """The suggestion that is named; None if we may not look. Raises UsageError if there is none of that name.

    The beginning of an id is enough: `options.suggestion` is all of it from here on.
    """
    approver = approver_of(space, options)
    if not space.may_request(options.approver, "tools/call", {"name": "trust_suggestions", "arguments": {}}):
        return None
    found = (await approver.ask("trust_suggestions"))["suggestions"]
    named = [each for each in found if each["suggestion"] == options.suggestion]
    # As of a proposal: less of an id could come to mean another one.
    like = named or [each for each in found if each["suggestion"].startswith(options.suggestion)]
    if not named and len(options.suggestion) < _LEAST_PREFIX:
        like = []
    if len(like) != 1:
        ids = ", ".join(each["suggestion"] for each in like or found)
        there = f"there is {ids}" if ids else "nothing is suggested"
        what = "several suggestions begin with" if like else "there is no suggestion"
        raise UsageError(f"{what} {options.suggestion}: {there}")
    options.suggestion = like[0]["suggestion"]
    one: dict[str, Any] = like[0]
    return one
