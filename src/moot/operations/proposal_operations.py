"""Looking at proposals and budgets: whose turn it is, each with all that a decision needs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from moot.errors import UsageError
from moot.operations.again import again_offer
from moot.operations.content_operation import reference_text
from moot.operations.operation import (
    NOT_TOLD,
    ClientContext,
    OperationResult,
    UserOperation,
    list_result,
    no_arguments,
    short_id,
)
from moot.operations.preview_operations import preview_lines, preview_record
from moot.operations.talk_operations import talk_lines
from moot.operations.text.input_text import input_lines
from moot.operations.text.origin_text import OriginNotes, caution_lines
from moot.operations.text.text_table import TextTable
from moot.protocol.envelope import rfc3339
from moot.protocol.large_content import reference_in
from moot.protocol.operation import Json

if TYPE_CHECKING:
    from moot.participant import JoinedSpace, SeenProposal


def split_by_decider(
    space: JoinedSpace, proposals: Iterable[SeenProposal]
) -> tuple[list[SeenProposal], list[SeenProposal]]:
    """Those that wait for us, and those that only others can still decide: our own, what we rejected or
    voted for."""
    mine: list[SeenProposal] = []
    others: list[SeenProposal] = []
    for seen in proposals:
        (others if others_note(space, seen) else mine).append(seen)
    return mine, others


def others_note(space: JoinedSpace, seen: SeenProposal) -> str:
    """Why a proposal does not wait for us; empty if it does."""
    us = (space.me, space.name)
    if seen.proposer in us:
        return "your own: others decide"
    if any(each.by in us for each in seen.rejections):
        return "rejected by you: others can still decide"
    if seen.approvals_missing and space.me in seen.votes:
        return "you voted: others vote, too"
    return ""


def waiting_for_me(context: ClientContext) -> list[SeenProposal]:
    """The open proposals that this member can decide."""
    return split_by_decider(context.space, context.space.proposals.open())[0]


def _proposals_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="include decided proposals, as far as known")


async def _proposals(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    ledger = context.space.proposals
    mine, others = split_by_decider(context.space, ledger.open())
    found = list(ledger) if args.all else [*mine, *ledger.unknown_outcomes(), *others]
    headings = ("ID", "PROPOSER", "TO", "CALL", "PROPOSED", "STATUS")
    table = TextTable(
        headings, [_row(context, seen) for seen in found], [_details(context, seen) for seen in found]
    )
    # Nobody is told that nothing is pending unless the gateway said so.
    nothing = {
        "known": "no pending proposals",
        "not_told": f"{NOT_TOLD}: `moot join` shows those that are made while you are connected",
    }.get(ledger.knowledge, "the gateway did not say what is pending: try again")
    return list_result([record(seen) | _for_whom(context, seen) for seen in found], table, nothing)


def _for_whom(context: ClientContext, seen: SeenProposal) -> dict[str, Json]:
    """Whether a pending one waits for whoever asks; what they rejected waits for others."""
    return {"waits_for_you": seen.status == "pending" and not others_note(context.space, seen)}


def record(seen: SeenProposal) -> dict[str, Json]:
    """One proposal for programs."""
    return {
        "id": seen.id,
        "proposer": seen.proposer,
        "to": list(seen.to),
        "method": seen.method,
        "params": seen.params,
        "status": seen.status,
        "outcome": seen.outcome,
        "state": seen.state,
        "proposed_at": seen.created,
        "expires_at": rfc3339(seen.expires),
        "fulfilled_by": seen.fulfilled_by,
        "rejections": [{"by": each.by, "reason": each.reason} for each in seen.rejections],
        "votes": list(seen.votes),
        "approvals_needed": seen.approvals_needed,
        "approvals_missing": seen.approvals_missing,
        "exempt": list(seen.exempt),
        "budgets": [msgspec.to_builtins(each) for each in seen.budgets] if seen.status == "pending" else [],
        "effects": [msgspec.to_builtins(each) for each in seen.effects] if seen.status == "pending" else [],
        "risks": [{"severity": each.severity, "text": each.text} for each in seen.risks],
        "inputs": list(seen.inputs),
        # Null: nobody has looked where its values came from.
        "origins": None if seen.origins is None else seen.origins.as_json(),
        # A model's words, by who asked it.
        "opinions": [{"by": by, **each.as_json()} for by, each in seen.opinions.items()],
        "preview": preview_record(seen),
        "comments": [each.as_json() for each in seen.comments],
        "assigned_to": list(seen.assigned_to),
        # The proposals that it is a changed version of; and what was changed in it before it ran.
        "counters": list(seen.counters),
        "changes": [each.as_json() for each in seen.changes],
    }


def _row(context: ClientContext, seen: SeenProposal) -> tuple[str, ...]:
    id = f"#{context.number(seen.id)} {short_id(seen.id)}" if context.is_interactive else short_id(seen.id)
    proposed = seen.created[:16].replace("T", " ")
    status = seen.state_text
    if seen.status == "pending" and (note := others_note(context.space, seen)):
        status = note
    if seen.vote_text:
        status += f", {seen.vote_text}"
    return (id, seen.proposer, ", ".join(seen.to) or "anyone", operation(seen), proposed, status)


def _details(context: ClientContext, seen: SeenProposal) -> list[str]:
    """What deserves a second look; all arguments, since exactly these are carried out; what others said."""
    viewers = (context.space.me, context.space.name)
    notes = OriginNotes(seen.origins, viewers, with_places=True)
    return [
        *(f"! {text}" for text in caution_lines(seen)),
        *(f"! {each.text}" for each in seen.risks),
        *preview_lines(seen),
        *space_lines(seen),
        *argument_lines(seen.params, notes, is_interactive=context.is_interactive),
        *(f"rejected by {each.by}: {each.reason}" for each in seen.rejections),
        *talk_lines(seen),
        *([f"votes: {', '.join(seen.votes)}"] if seen.votes else []),
        *([f"exempt from the vote: {', '.join(seen.exempt)}"] if seen.exempt else []),
        *input_lines(seen),
        *_outcome_lines(seen),
        *_again_lines(context, seen),
    ]


def _again_lines(context: ClientContext, seen: SeenProposal) -> list[str]:
    """What `--again` would allow: nobody should learn it only afterwards."""
    offer = again_offer(context.space, seen) if seen.status == "pending" else None
    return [] if offer is None else [f"approve --again: {offer.text}"]


def space_lines(seen: SeenProposal) -> list[str]:
    """What a pending call would take of the space's budgets and bring about; what stops it stands out."""
    if seen.status != "pending":
        return []
    notes: list[tuple[str, str]] = [(each.verdict, each.text) for each in seen.effects]
    notes += [(each.verdict, each.text) for each in seen.budgets]
    return [f"{'' if verdict == 'free' else '! '}{text}" for verdict, text in notes]


def _outcome_lines(seen: SeenProposal) -> list[str]:
    if seen.outcome == "unknown":
        why = f" ({seen.fault})" if seen.fault is not None else ""
        return [
            f"outcome unknown{why}",
            f"it never runs again; when you know: moot proposal settle {short_id(seen.id)} --outcome done",
        ]
    if seen.assessed_by is None:
        return []
    return [f"settled as {seen.outcome} by {seen.assessed_by}" + (f": {seen.note}" if seen.note else "")]


def described(context: ClientContext, seen: SeenProposal) -> list[str]:
    """One proposal for people: all of it, since they decide on it."""
    name = f"#{context.number(seen.id)} {short_id(seen.id)}" if context.is_interactive else short_id(seen.id)
    host = ", ".join(seen.to) or "anyone"
    lines = [f"{name}  {seen.proposer} proposes {operation(seen)} on {host}"]
    if seen.status != "pending":
        lines.append(f"    {seen.state_text}")
    return [*lines, *(f"    {line}" for line in _details(context, seen))]


def operation(seen: SeenProposal) -> str:
    name = seen.params.get("name") or seen.params.get("uri")
    return f"{seen.method} {name}" if isinstance(name, str) else seen.method


def argument_lines(
    params: Json, notes: OriginNotes | None = None, *, is_interactive: bool = False
) -> list[str]:
    """The arguments, one a line, each with where it came from; texts of several lines keep them, for that is
    what will be written."""
    notes = notes or OriginNotes(None, (), with_places=False)
    arguments = params.get("arguments") if isinstance(params, dict) else None
    if not isinstance(arguments, dict):
        arguments = {}
    if reference_in(arguments) is not None:
        arguments = {"arguments": arguments}
    lines: list[str] = []
    for name, value in arguments.items():
        if isinstance(value, str):
            first, *rest = value.split("\n")
            lines += [f"{name}: {first}", *(f"{' ' * len(name)}  {line}" for line in rest)]
        elif (reference := reference_in(value)) is not None:
            lines += [f"{name}: {reference_text(reference, is_interactive=is_interactive)}. It begins with"]
            lines += [f"{' ' * len(name)}  {line}" for line in reference.excerpt.split("\n")]
        else:
            lines.append(f"{name}: {json.dumps(value, ensure_ascii=False)}")
        lines += [f"  ← {text}" for _, found in notes.take_argument(name) for text in found]
    return [*lines, *(f"  ← {text}" for _, found in notes.take_rest() for text in found)]


async def _budgets(context: ClientContext, _: argparse.Namespace) -> OperationResult:
    space = context.space
    # They change with every call, so they are asked for.
    if not await space.refresh_proposals():
        raise UsageError("the gateway did not say what is used of the budgets: try again")
    found = space.proposals.budgets
    table = TextTable(
        ("BUDGET", "OF", "USED", "ASKS BEYOND", "AT MOST", "FREE AGAIN"),
        [
            (
                each.budget,
                each.holder or "",
                each.used,
                each.ask_at or "",
                each.at_most or "",
                each.resets_at[:16].replace("T", " "),
            )
            for each in found
        ],
        [[each.about] for each in found],
    )
    return list_result([msgspec.to_builtins(each) for each in found], table, "this space has no budgets")


OPERATIONS = (
    UserOperation(
        name="proposals",
        help="list pending proposals",
        description="Lists pending proposals with all arguments. What you approve is exactly what is shown.",
        examples="  moot proposals\n  moot proposals --all --json | jq '.[].status'\n",
        arguments=_proposals_arguments,
        run=_proposals,
        needs_history=True,
    ),
    UserOperation(
        name="budgets",
        help="list the budgets of the space and what is used of them",
        description="Lists how much calls may come to in this space, as its configuration says (`budgets`), "
        "what is used, and when they are free again (UTC).",
        examples="  moot budgets\n  moot budgets --json | jq '.[] | {budget, used, at_most}'\n",
        arguments=no_arguments,
        run=_budgets,
    ),
)
