"""Deciding on proposals: look at them, approve, vote, reject, withdraw."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from moot.errors import ApprovalRequired, UsageError
from moot.protocol.operation import Json
from moot.tui.operations.operation import ClientContext, OperationResult, UserOperation, short

if TYPE_CHECKING:
    from moot.participant import SeenProposal

_ID = "its id, or the start of it"


def _proposals_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="include decided proposals, as far as known")


async def _proposals(seat: ClientContext, chosen: argparse.Namespace) -> OperationResult:
    ledger = seat.space.proposals
    found = list(ledger) if chosen.all else ledger.open()
    lines: list[str] = []
    for seen in found:
        lines += described(seat, seen)
    if not found:
        lines = ["no pending proposals"]
    return OperationResult([record(seen) for seen in found], lines)


def record(seen: SeenProposal) -> dict[str, Json]:
    """One proposal for machines: as MEW 10.2 lists it, and what others said to it."""
    return seen.record() | {
        "rejections": [{"by": each.by, "reason": each.reason} for each in seen.rejections],
        "votes": list(seen.votes),
        "fulfilledBy": seen.fulfilled_by,
    }


def described(seat: ClientContext, seen: SeenProposal) -> list[str]:
    """One proposal for people: all of it, since they decide on it."""
    name = f"#{seat.number(seen.id)} {short(seen.id)}" if seat.stays else short(seen.id)
    host = ", ".join(seen.to) or "anyone"
    lines = [f"{name}  {seen.proposer} proposes {operation(seen)} on {host}"]
    lines += [f"    {line}" for line in argument_lines(seen.params)]
    if seen.status != "pending":
        by = f" by {seen.fulfilled_by}" if seen.fulfilled_by else ""
        lines.append(f"    {seen.status}{by}")
    lines += [f"    rejected by {each.by}: {each.reason}" for each in seen.rejections]
    lines += [f"    votes: {', '.join(seen.votes)}"] if seen.votes else []
    return lines


def operation(seen: SeenProposal) -> str:
    name = seen.params.get("name") or seen.params.get("uri")
    return f"{seen.method} {name}" if isinstance(name, str) else seen.method


def argument_lines(params: Json) -> list[str]:
    """The arguments, one a line; texts of several lines keep them, for that is what will be written."""
    arguments = params.get("arguments") if isinstance(params, dict) else None
    if not isinstance(arguments, dict):
        return []
    lines: list[str] = []
    for name, value in arguments.items():
        if isinstance(value, str):
            first, *rest = value.split("\n")
            lines += [f"{name}: {first}", *(f"{' ' * len(name)}  {line}" for line in rest)]
        else:
            lines.append(f"{name}: {json.dumps(value, ensure_ascii=False)}")
    return lines


def _approve_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("proposal", metavar="ID", help=_ID)
    parser.add_argument("--to", metavar="NAME", help="who should run it, if the proposal names no one")


async def _approve(seat: ClientContext, chosen: argparse.Namespace) -> OperationResult:
    seen = seat.proposal(chosen.proposal)
    try:
        to = (chosen.to,) if chosen.to else ()
        outcome = await seat.space.approve(seen, to=to, timeout_seconds=seat.timeout)
    except ApprovalRequired as refusal:
        raise ApprovalRequired(
            f"{refusal.message}: `moot proposal vote {short(seen.id)}` adds your vote; others vote too"
        ) from None
    lines = [f"approved {short(seen.id)}; {outcome.host} answered:", *outcome.text.split("\n")]
    value: Json = {"proposal": seen.id, "host": outcome.host, "result": outcome.result}
    return OperationResult(value, lines, 1 if outcome.is_error else 0)


def _one_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("proposal", metavar="ID", help=_ID)


async def _vote(seat: ClientContext, chosen: argparse.Namespace) -> OperationResult:
    seen = seat.proposal(chosen.proposal)
    sent = await seat.space.vote(seen)
    return OperationResult({"id": sent.id, "proposal": seen.id}, [f"voted for {short(seen.id)}"])


def _reject_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("proposal", metavar="ID", help=_ID)
    parser.add_argument(
        "--reason",
        default="disagree",
        metavar="WORD",
        help="disagree (default), unsafe, inappropriate, busy, incapable, policy, duplicate, invalid, …",
    )
    parser.add_argument("--explain", metavar="TEXT", help="a comment for the proposer")


async def _reject(seat: ClientContext, chosen: argparse.Namespace) -> OperationResult:
    seen = seat.proposal(chosen.proposal)
    sent = await seat.space.reject(seen, chosen.reason, explanation=chosen.explain)
    return OperationResult(
        {"id": sent.id, "proposal": seen.id}, [f"rejected {short(seen.id)}: {chosen.reason}"]
    )


def _withdraw_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("proposal", metavar="ID", help=_ID)
    parser.add_argument("--reason", default="no_longer_needed", metavar="WORD", help="why")


async def _withdraw(seat: ClientContext, chosen: argparse.Namespace) -> OperationResult:
    seen = seat.proposal(chosen.proposal)
    seen.check_open()
    if seen.proposer not in (seat.space.me, seat.space.name):
        raise UsageError(f"{short(seen.id)} is a proposal of {seen.proposer}: only they can withdraw it")
    payload: dict[str, Json] = {"reason": chosen.reason}
    sent = await seat.space.send("mcp/withdraw", payload, about=seen.id, confirm=True)
    return OperationResult({"id": sent.id, "proposal": seen.id}, [f"withdrew {short(seen.id)}"])


OPERATIONS = (
    UserOperation(
        name="proposals",
        help="list pending proposals",
        about="Lists pending proposals with all arguments. What you approve is exactly what is shown.",
        examples="  moot proposals\n  moot proposals --all --json | jq '.[].status'\n",
        arguments=_proposals_arguments,
        run=_proposals,
        recalls=True,
    ),
    UserOperation(
        name="approve",
        help="approve a proposal and run it",
        about="Sends exactly the request that was proposed and prints its result. It runs at most once. "
        "In a space that requires several votes, `moot proposal vote` adds yours.",
        examples="  moot proposals\n  moot approve 3f1c22ab\n",
        arguments=_approve_arguments,
        run=_approve,
        recalls=True,
    ),
    UserOperation(
        name="vote",
        help="vote for a proposal, in spaces that require several votes",
        about="Votes for a proposal. This runs nothing: once there are enough votes, somebody approves it.",
        examples="  moot proposal vote 3f1c22ab\n",
        arguments=_one_arguments,
        run=_vote,
        recalls=True,
    ),
    UserOperation(
        name="reject",
        help="reject a proposal",
        about="Rejects a proposal with a reason. Everyone sees it; others can still approve the proposal.",
        examples='  moot reject 3f1c22ab --reason unsafe --explain "not on a Friday"\n',
        arguments=_reject_arguments,
        run=_reject,
        recalls=True,
    ),
    UserOperation(
        name="withdraw",
        help="withdraw one of your proposals",
        examples="  moot proposal withdraw 3f1c22ab --reason superseded\n",
        arguments=_withdraw_arguments,
        run=_withdraw,
        recalls=True,
    ),
)
