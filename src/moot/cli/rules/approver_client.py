"""Asks the approver of a space, and tells it what a person decided about its rules."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from moot.errors import MootError, TimedOut, UsageError

if TYPE_CHECKING:
    from moot.participant import JoinedSpace, SentEnvelope
    from moot.protocol.envelope import Envelope

# `s-` and four characters more.
_LEAST_PREFIX: Final = 6


def check_here(space: JoinedSpace, options: argparse.Namespace) -> None:
    if options.approver not in space.roster:
        raise MootError(
            f"no member {options.approver} is here, so nothing was done. `moot up` starts the one in"
            " moot.yaml; `moot rules run --help` shows its lines. --approver NAME names another one"
        )


async def ask_approver(
    space: JoinedSpace, options: argparse.Namespace, tool: str, arguments: dict[str, Any] | None = None
) -> dict[str, Any]:
    check_here(space, options)
    outcome = await space.call(options.approver, tool, arguments or {})
    answer = outcome.structured
    if not isinstance(answer, dict):
        raise MootError(f"{options.approver} is no approver: it answered {tool} with something else")
    return answer


async def find_suggestion(space: JoinedSpace, options: argparse.Namespace) -> dict[str, Any] | None:
    """The suggestion that is named; None if we may not look. Raises UsageError if there is none of that name.

    The beginning of an id is enough: `options.suggestion` is all of it from here on.
    """
    check_here(space, options)
    if not space.may_request(options.approver, "tools/call", {"name": "trust_suggestions", "arguments": {}}):
        return None
    found = (await ask_approver(space, options, "trust_suggestions"))["suggestions"]
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


async def tell_approver(
    space: JoinedSpace, options: argparse.Namespace, kind: str, payload: Any, about: str = ""
) -> tuple[SentEnvelope, Envelope]:
    """Said to all, and what the approver answered; raises UsageError when it says no, TimedOut if nothing."""
    from moot.operations.rule_commands import ANSWER_SECONDS, send_and_wait

    sent, answer = await send_and_wait(space, kind, payload, to="", about=about, approver=options.approver)
    check_agreed(options, answer)
    if answer is None:
        raise TimedOut(
            f"{options.approver} has not answered within {ANSWER_SECONDS:g} s; `moot rules list` shows"
            " whether it acted"
        )
    return sent, answer


def check_agreed(options: argparse.Namespace, answer: Envelope | None) -> None:
    if answer is not None and answer.kind == "chat":
        raise MootError(f"{options.approver}: {answer.payload.get('text')}")
