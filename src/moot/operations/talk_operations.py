"""What a team says about proposals: comments, and whom they are for."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

import msgspec

from moot.errors import UsageError
from moot.operations.message_operations import note_absent, words_of
from moot.operations.operation import (
    ClientContext,
    OperationResult,
    UserOperation,
    add_reason,
    list_result,
    short_id,
)
from moot.operations.text.text_table import TextTable
from moot.protocol.changes import change_lines
from moot.resilience.durations import HOW_LONG, duration_text, parse_duration

if TYPE_CHECKING:
    from moot.participant import SeenProposal

_ID = "its id, or the start of it"


def talk_lines(seen: SeenProposal) -> list[str]:
    """Whom a proposal is for, what it changes or was changed to, and what was said about it."""
    return [
        *([f"for {', '.join(seen.assigned_to)}, says {seen.assigned_by}"] if seen.assigned_to else []),
        *(f"a changed version of {short_id(id)}: approving it settles that one" for id in seen.counters),
        *(f"changed: {line}" for line in change_lines(seen.changes)),
        *(line for each in seen.comments for line in _comment_lines(each.by, each.text)),
    ]


def _comment_lines(by: str, text: str) -> list[str]:
    first, *rest = text.split("\n")
    return [f"{by}: {first}", *(f"  {line}" for line in rest)]


def _comment_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("proposal", metavar="ID", help=_ID)
    parser.add_argument("text", nargs="+", metavar="TEXT", help="the text; - reads it from standard input")
    parser.add_argument(
        "--to", action="append", default=[], metavar="NAME", help="whom it asks (default: the proposer)"
    )


async def _comment(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    seen = context.proposal(args.proposal)
    text = words_of(args.text)
    if not text.strip():
        raise UsageError("there is no text: moot comment ID TEXT")
    sent = await context.space.comment(seen, text, to=args.to)
    away, lines = note_absent(context, args.to)
    unknown = _unknown_mentions(context, text)
    lines += [f"note: nobody who is here has the name {name}, so @{name} tells nobody" for name in unknown]
    return OperationResult(
        {"id": sent.id, "proposal_id": seen.id, "absent": away, "unknown": unknown},
        [f"commented on {short_id(seen.id)}", *lines],
    )


def _unknown_mentions(context: ClientContext, text: str) -> list[str]:
    """Whom a text mentions, as in @ana, that is nobody."""
    named = dict.fromkeys(re.findall(r"(?<![\w.@-])@([A-Za-z][\w.-]*\w|[A-Za-z])", text))
    return note_absent(context, named)[0]


def _assign_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("proposal", metavar="ID", help=_ID)
    parser.add_argument("members", nargs="*", metavar="NAME", help="whom it is for; nobody: anybody again")


async def _assign(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    seen = context.proposal(args.proposal)
    await context.space.assign(seen, args.members)
    whom = ", ".join(args.members) or "anybody again"
    return OperationResult(
        {"proposal_id": seen.id, "assigned_to": list(args.members)}, [f"{short_id(seen.id)} is for {whom}"]
    )


def _delegate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("member", nargs="?", metavar="NAME", help="who decides; without it, all are listed")
    parser.add_argument("--for", dest="seconds", metavar="TIME", type=parse_duration, help=HOW_LONG)
    add_reason(parser)
    parser.add_argument("--end", action="store_true", help="take it back, or give back what NAME gave you")


async def _delegate(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    space = context.space
    if args.member is None:
        if args.end or args.seconds is not None or args.reason is not None:
            raise UsageError("who? moot delegate NAME --for 8h, or moot delegate NAME --end")
        return await _list_delegations(context)
    if args.end:
        return await _end_delegation(context, args.member)
    if args.seconds is None:
        raise UsageError("say how long: --for 8h. A delegation ends by itself, after 31 days at most")
    sent = await space.delegate(args.member, seconds=args.seconds, reason=args.reason)
    return OperationResult(
        {"delegation_id": sent.id, "to": args.member},
        [
            f"{args.member} decides in your place for {duration_text(args.seconds)}: what you may decide, "
            f"and no more. `moot delegate {args.member} --end` takes it back",
        ],
    )


async def _end_delegation(context: ClientContext, member: str) -> OperationResult:
    """Take back what we gave; where we gave nothing, give back what we got."""
    space = context.space
    is_known = await space.refresh_proposals()
    pairs = {(each.giver, each.delegate) for each in space.proposals.delegations.living()}
    us = {space.me, space.name}
    # What is not known is taken back all the same.
    if not is_known or any((own, member) in pairs for own in us):
        await space.end_delegation(to=member)
        return OperationResult({"ended": True}, [f"{member} no longer decides in your place"])
    if any((member, own) in pairs for own in us):
        await space.end_delegation(giver=member)
        return OperationResult({"ended": True}, [f"you no longer decide in the place of {member}"])
    raise UsageError(f"neither of you and {member} decides for the other: `moot delegate` lists who does")


async def _list_delegations(context: ClientContext) -> OperationResult:
    space = context.space
    if not await space.refresh_proposals():
        raise UsageError("the gateway did not say who decides in whose place: try again")
    found = space.proposals.delegations.living()
    rows = [
        (each.giver, each.delegate, each.until[:16].replace("T", " "), each.reason or "") for each in found
    ]
    table = TextTable(("IN PLACE OF", "DECIDES", "UNTIL (UTC)", "REASON"), rows)
    return list_result(
        [msgspec.to_builtins(each) for each in found], table, "everyone decides for themselves"
    )


OPERATIONS = (
    UserOperation(
        name="delegate",
        help="let somebody decide in your place while you are away; list who does",
        description="Lets a member approve, vote and reject in your place for a time. It may decide what you "
        "may, as long as you may, and no more; not its own proposals and not yours. In a quorum you count "
        "once. Everyone sees it, and it ends by itself.",
        examples='  moot delegate bob --for 7d --reason "on holiday"\n  moot delegate bob --end\n'
        "  moot delegate                                 who decides in whose place\n",
        arguments=_delegate_arguments,
        run=_delegate,
    ),
    UserOperation(
        name="comment",
        help="say something about a proposal, or ask its proposer back",
        description="Sends a chat that refers to a proposal. It is addressed to those whom it mentions "
        "(@ana), or else to the proposer; everyone sees it. `moot proposals` shows comments.",
        examples='  moot comment 3f1c22ab "what is it for?"\n  moot comment 3f1c22ab "@ana is that right?"\n',
        arguments=_comment_arguments,
        run=_comment,
        needs_history=True,
    ),
    UserOperation(
        name="assign",
        help="say whom a proposal is for",
        description="Says whom a pending proposal is for. Everyone sees it, those named are told at once, "
        "and nobody's rights change: others can still decide.",
        examples="  moot assign 3f1c22ab ana\n  moot assign 3f1c22ab            for anybody again\n",
        arguments=_assign_arguments,
        run=_assign,
        needs_history=True,
    ),
)
