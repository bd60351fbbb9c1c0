"""Several proposals at once: by their ids, or all that wait for us and are of one member, tool or risk."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from moot.errors import MootError, UsageError
from moot.operations.operation import ClientContext, OperationResult, short_id
from moot.protocol.operation import Json

if TYPE_CHECKING:
    from moot.participant import SeenProposal

_RISKS: Final = ("none", "warn", "bad")

Decide = Callable[[ClientContext, argparse.Namespace], Awaitable[OperationResult]]
Waiting = Callable[[ClientContext], "list[SeenProposal]"]


def add_selection(parser: argparse.ArgumentParser, *, asks: bool) -> None:
    """Ids and filters; `asks`: what a filter finds is listed first, and decided only with --yes."""
    parser.add_argument("proposal", metavar="ID", nargs="*", help="its id, or the start of it; several too")
    parser.add_argument("--by", metavar="NAME", help="all that this member proposed")
    parser.add_argument("--tool", metavar="NAME", help="all that call this tool")
    parser.add_argument("--risk", choices=_RISKS, help="all whose most serious hint is of this kind")
    parser.add_argument("--like", metavar="ID", help="all of the same member, tool and names of arguments")
    if asks:
        parser.add_argument(
            "--yes",
            action="store_true",
            help="decide on all that the filters find then, also on what you have not seen, except where a "
            "hint is bad",
        )


def for_each(decide: Decide, waiting: Waiting, *, asks: bool) -> Decide:
    """Decide on every proposal that is named or found; a failure of one does not keep the others from it."""

    async def run(context: ClientContext, args: argparse.Namespace) -> OperationResult:
        filters = [args.by, args.tool, args.risk, args.like]
        if not any(filters):
            if not args.proposal:
                raise UsageError("which proposal? Give its id, or --by, --tool, --risk or --like")
            found = [context.proposal(each) for each in args.proposal]
        elif args.proposal:
            raise UsageError("give ids or filters, not both")
        else:
            found = _filtered(context, args, waiting(context))
        if len(found) == 1 and not any(filters):
            return await decide(context, _one(args, found[0]))
        if asks and any(filters) and not args.yes:
            return _listed(context, found)
        # Whoever names a filter has not read every call.
        is_blind = asks and any(filters) and args.risk != "bad"
        unread = [seen for seen in found if is_blind and _tone(seen) == "bad"]
        read = [seen for seen in found if seen not in unread]
        return await _decide_all(decide, context, args, read, unread)

    return run


def _one(args: argparse.Namespace, seen: SeenProposal) -> argparse.Namespace:
    return argparse.Namespace(**{**vars(args), "proposal": seen.id})


def _tone(seen: SeenProposal) -> str:
    tones = {risk.severity for risk in seen.risks}
    return next((tone for tone in ("bad", "warn") if tone in tones), "none")


def _kind(seen: SeenProposal) -> tuple[object, ...]:
    """The same for calls of one member that differ in the values of their arguments."""
    given = seen.params.get("arguments")
    names = tuple(sorted(given)) if isinstance(given, dict) else ()
    return seen.proposer, seen.to, seen.method, seen.params.get("name"), names


def _filtered(
    context: ClientContext, args: argparse.Namespace, waiting: list[SeenProposal]
) -> list[SeenProposal]:
    kind = None if args.like is None else _kind(context.proposal(args.like))
    found = [
        seen
        for seen in waiting
        if args.by in (None, seen.proposer)
        and args.tool in (None, seen.params.get("name"))
        and args.risk in (None, _tone(seen))
        and kind in (None, _kind(seen))
    ]
    if not found:
        raise UsageError("nothing that waits for you matches: `moot proposals` lists what is pending")
    return found


def _listed(context: ClientContext, found: list[SeenProposal]) -> OperationResult:
    """All of them, and how to decide on exactly these: more may come in before anybody has read them."""
    # It loads the SDK, which no command needs before it is called.
    from moot.operations.text.call_text import show_arguments

    lines = [
        line
        for seen in found
        for line in (
            f"{short_id(seen.id)}  {seen.proposer}: {seen.method} {seen.params.get('name', '')}".rstrip(),
            *(f"    {each}" for each in show_arguments(seen.method, seen.params).split("\n")),
            *(f"    ! {risk.text}" for risk in seen.risks if risk.severity != "info"),
        )
    ]
    read = [seen for seen in found if _tone(seen) != "bad" and _is_shown_whole(seen)]
    lines.append(f"{len(found)} match. Nothing was decided")
    if read:
        command = "/approve" if context.is_interactive else "moot approve"
        lines.append(
            f"to approve {_these(read, found)}: {command} {' '.join(short_id(each.id) for each in read)}"
        )
    if len(read) < len(found):
        lines.append("those that are too long, or have a red hint, one by one")
    return OperationResult([seen.id for seen in found], lines, 1)


def _these(read: list[SeenProposal], found: list[SeenProposal]) -> str:
    return "exactly these" if len(read) == len(found) else f"{len(read)} of these"


def _is_shown_whole(seen: SeenProposal) -> bool:
    from moot.operations.text.call_text import show_arguments

    whole = show_arguments(seen.method, seen.params, sys.maxsize)
    return show_arguments(seen.method, seen.params) == whole


async def _decide_all(
    decide: Decide,
    context: ClientContext,
    args: argparse.Namespace,
    found: list[SeenProposal],
    unread: list[SeenProposal],
) -> OperationResult:
    values: list[Json] = []
    lines: list[str] = []
    code = 0
    for seen in found:
        try:
            result = await decide(context, _one(args, seen))
        except MootError as fault:
            values.append({"proposal_id": seen.id, "error": str(fault)})
            lines.append(f"{short_id(seen.id)}: {fault}")
            code = 1
            continue
        values.append(result.value)
        lines += result.lines
        code = max(code, result.code)
    for seen in unread:
        values.append({"proposal_id": seen.id, "skipped": "bad"})
        lines.append(f"skipped {short_id(seen.id)}, read it first: {seen.risks[0].text}")
    return OperationResult(values, lines, code or (1 if unread else 0))
