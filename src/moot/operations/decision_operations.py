"""Deciding on proposals: approve, vote, reject, withdraw, settle."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from moot.errors import MootError, UsageError, VoteCounted
from moot.operations.again import payload_of, remember_call
from moot.operations.changed_arguments import read_changes
from moot.operations.input_text import questions_in
from moot.operations.operation import (
    ClientContext,
    OperationResult,
    UserOperation,
    short_id,
)
from moot.operations.passkey_approval import approve_in_console
from moot.operations.proposal_operations import waiting_for_me
from moot.operations.proposal_selection import add_selection, for_each
from moot.protocol.changes import change_lines
from moot.protocol.operation import Json

if TYPE_CHECKING:
    from moot.participant import SeenProposal


_ID = "its id, or the start of it"


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
    parser.add_argument(
        "--repeat", action="store_true", help="do it again, though the same was done before, or may have been"
    )
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
    repeat = getattr(args, "repeat", False)
    if params is None and not repeat and (notes := [each for each in seen.effects if each.earlier]):
        raise UsageError(f"{notes[0].text} If so, add --repeat. Nothing was approved")
    try:
        to = (args.to,) if getattr(args, "to", None) else ()
        outcome = await context.space.approve(
            seen,
            to=to,
            params=params,
            repeats=seen.repeats if repeat else (),
            timeout_seconds=context.timeout_seconds,
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
        run=for_each(_approve, waiting_for_me, asks=True),
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
        run=for_each(_reject, waiting_for_me, asks=False),
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
