"""Deciding on proposals: look at them, approve, vote, reject, withdraw."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from moot.errors import MootError, UsageError, VoteCounted
from moot.operations.again import again_offer, payload_of, remember_call
from moot.operations.changed_arguments import read_changes
from moot.operations.content_operation import reference_text
from moot.operations.input_text import input_lines, questions_in
from moot.operations.operation import (
    NOT_TOLD,
    ClientContext,
    OperationResult,
    UserOperation,
    list_result,
    no_arguments,
    short_id,
)
from moot.operations.origin_text import OriginNotes, caution_lines
from moot.operations.passkey_approval import approve_in_console
from moot.operations.proposal_selection import add_selection, for_each
from moot.operations.talk_operations import talk_lines
from moot.operations.text_table import TextTable
from moot.protocol.changes import change_lines
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


def _mine(context: ClientContext) -> list[SeenProposal]:
    return split_by_decider(context.space, context.space.proposals.open())[0]


_ID = "its id, or the start of it"


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
        "risks": [{"severity": each.severity, "text": each.text} for each in seen.risks],
        "inputs": list(seen.inputs),
        # Null: nobody has looked where its values came from.
        "origins": None if seen.origins is None else seen.origins.as_json(),
        # A model's words, by who asked it.
        "opinions": [{"by": by, **each.as_json()} for by, each in seen.opinions.items()],
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
        *budget_lines(seen),
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


def budget_lines(seen: SeenProposal) -> list[str]:
    """What a pending call would take of the space's budgets; what stops it stands out."""
    if seen.status != "pending":
        return []
    return [f"{'' if each.verdict == 'free' else '! '}{each.text}" for each in seen.budgets]


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
        lines += [f"  ← {text}" for _, found in notes.take(name) for text in found]
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


def _approve_arguments(parser: argparse.ArgumentParser) -> None:
    add_selection(parser, asks=True)
    parser.add_argument("--to", metavar="NAME", help="who should run it, if the proposal names no one")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="approve with changes: another value in its arguments, as in amount=95 or lines.0.note=rent",
    )
    parser.add_argument("--edit", action="store_true", help="likewise, with all arguments in your editor")
    parser.add_argument("--again", action="store_true", help="approve exactly this call from now on, too")
    parser.add_argument("--times", type=int, metavar="N", help="with --again: so often (default: as offered)")
    parser.add_argument(
        "--until", metavar="WHEN", help="with --again: 12h, 7d or a time (default: as offered)"
    )


def _again_payload(context: ClientContext, seen: SeenProposal, args: argparse.Namespace) -> dict[str, Json]:
    """What to ask of the approver, or nothing; checked before anything is approved."""
    if not getattr(args, "again", False):
        if getattr(args, "times", None) is not None or getattr(args, "until", None) is not None:
            raise UsageError("--times and --until are for --again")
        return {}
    payload = payload_of(seen, None if seen.origins is None else seen.origins.again)
    payload |= {} if args.times is None else {"count": args.times}
    payload |= {} if args.until is None else {"until": args.until}
    if not context.space.may("trust/accept", payload):
        raise UsageError("your permissions do not allow --again: it needs trust/accept. Nothing was approved")
    if seen.approvals_needed:
        raise UsageError("several people have to approve this call each time. Nothing was approved")
    return payload


async def _approve(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    seen = context.proposal(args.proposal)
    again = _again_payload(context, seen, args)
    if seen.passkey and seen.missing_for(context.space.me):
        return await approve_in_console(context, seen)
    params = await read_changes(context, seen, args)
    try:
        to = (args.to,) if getattr(args, "to", None) else ()
        outcome = await context.space.approve(
            seen, to=to, params=params, timeout_seconds=context.timeout_seconds
        )
    except VoteCounted as voted:
        return _counted(seen, str(voted))
    changes = change_lines(outcome.changes)
    lines = [
        f"approved {short_id(seen.id)}{' with changes' * bool(changes)}; {outcome.host} answered:",
        *(f"changed {line}" for line in changes),
        *outcome.text.split("\n"),
    ]
    if outcome.input_required:
        lines = [
            f"approved {short_id(seen.id)}; {outcome.host} asks {seen.proposer}:",
            *questions_in(outcome.result),
            f"It goes on when {seen.proposer} has answered; your approval covers that.",
        ]
    value: dict[str, Json] = {"proposal_id": seen.id, "member": outcome.host, "result": outcome.result}
    if outcome.changes:
        value["changes"] = [each.as_json() for each in outcome.changes]
    if again:
        try:
            value["again"] = await remember_call(context.space, again)
        except MootError as fault:
            raise type(fault)(f"approved {short_id(seen.id)}, but {fault}") from None
        lines.append(value["again"])
    return OperationResult(value, lines, 1 if outcome.is_error else 0)


def _one_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("proposal", metavar="ID", help=_ID)


def _counted(seen: SeenProposal, text: str) -> OperationResult:
    return OperationResult(
        {
            "proposal_id": seen.id,
            "approvals_needed": seen.approvals_needed,
            "approvals_missing": seen.approvals_missing,
            "votes": list(seen.votes),
        },
        [f"voted for {short_id(seen.id)}; {text}"],
    )


async def _vote(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    seen = context.proposal(args.proposal)
    if seen.approvals_needed:
        return await _approve(context, args)
    sent = await context.space.vote(seen)
    return OperationResult({"id": sent.id, "proposal_id": seen.id}, [f"voted for {short_id(seen.id)}"])


def _reject_arguments(parser: argparse.ArgumentParser) -> None:
    add_selection(parser, asks=False)
    parser.add_argument(
        "--reason",
        default="disagree",
        metavar="WORD",
        help="disagree (default), unsafe, inappropriate, busy, incapable, policy, duplicate, invalid, …",
    )
    parser.add_argument("--explain", metavar="TEXT", help="a comment for the proposer")


async def _reject(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    seen = context.proposal(args.proposal)
    sent = await context.space.reject(seen, args.reason, explanation=args.explain)
    return OperationResult(
        {"id": sent.id, "proposal_id": seen.id}, [f"rejected {short_id(seen.id)}: {args.reason}"]
    )


def _withdraw_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("proposal", metavar="ID", help=_ID)
    parser.add_argument("--reason", default="no_longer_needed", metavar="WORD", help="why")


async def _withdraw(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    seen = context.proposal(args.proposal)
    seen.check_open()
    if seen.proposer not in (context.space.me, context.space.name):
        raise UsageError(f"{short_id(seen.id)} is a proposal of {seen.proposer}: only they can withdraw it")
    payload: dict[str, Json] = {"reason": args.reason}
    sent = await context.space.send("mcp/withdraw", payload, about=seen.id, confirm=True)
    return OperationResult({"id": sent.id, "proposal_id": seen.id}, [f"withdrew {short_id(seen.id)}"])


def _settle_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("proposal", metavar="ID", help=_ID)
    parser.add_argument("--outcome", required=True, choices=("done", "failed"), help="what came of it")
    parser.add_argument("--note", metavar="TEXT", help="how you know")


async def _settle(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    seen = context.proposal(args.proposal)
    sent = await context.space.settle(seen, args.outcome, note=args.note)
    return OperationResult(
        {"id": sent.id, "proposal_id": seen.id, "outcome": args.outcome},
        [f"settled {short_id(seen.id)} as {args.outcome}"],
    )


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
    UserOperation(
        name="approve",
        help="approve proposals and run them, or vote for them",
        description="Sends exactly the request that was proposed and prints its result. It runs at most "
        "once. Where several approvals are needed, this is one of them: the last one runs it.",
        examples="  moot proposals\n  moot approve 3f1c22ab\n"
        "  moot approve 3f1c22ab --set amount=95         exactly the changed call, once; the agent is told\n"
        "  moot approve 3f1c22ab --again                 and exactly this call from now on\n"
        "  moot approve 3f1c22ab --again --times 3 --until 12h\n"
        "  moot approve 3f1c22ab 77aa01bc                both\n"
        "  moot approve --like 3f1c22ab                  lists those like it; --yes approves them\n",
        arguments=_approve_arguments,
        run=for_each(_approve, _mine, asks=True),
        needs_history=True,
    ),
    UserOperation(
        name="vote",
        help="vote for a proposal, in spaces that require several votes",
        description="Votes for a proposal, as `moot approve` does where votes are missing. The last vote "
        "runs it, unless the space says `last_vote_carries_out: false`.",
        examples="  moot proposal vote 3f1c22ab\n",
        arguments=_one_arguments,
        run=_vote,
        needs_history=True,
    ),
    UserOperation(
        name="reject",
        help="reject proposals",
        description="Rejects proposals with a reason. Everyone sees it; others can still approve them.",
        examples='  moot reject 3f1c22ab --reason unsafe --explain "not on a Friday"\n'
        "  moot reject --by agent --tool write_file      all of them that wait for you\n",
        arguments=_reject_arguments,
        run=for_each(_reject, _mine, asks=False),
        needs_history=True,
    ),
    UserOperation(
        name="withdraw",
        help="withdraw one of your proposals",
        examples="  moot proposal withdraw 3f1c22ab --reason superseded\n",
        arguments=_withdraw_arguments,
        run=_withdraw,
        needs_history=True,
    ),
    UserOperation(
        name="settle",
        help="say what came of an approved call whose outcome is unknown",
        description="Settles a proposal that was approved and whose host never answered. Look first whether "
        "the call was carried out. Everyone sees it; a later answer of the host counts more.",
        examples='  moot proposal settle 3f1c22ab --outcome done --note "the file is there"\n',
        arguments=_settle_arguments,
        run=_settle,
        needs_history=True,
    ),
)
