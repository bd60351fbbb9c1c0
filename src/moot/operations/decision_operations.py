"""Deciding on proposals: approve, vote, reject, withdraw, settle."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from moot.errors import MootError, PasskeyRequired, TimedOut, UsageError, VoteCounted
from moot.operations.again import payload_of, remember_call
from moot.operations.operation import (
    ClientContext,
    OperationResult,
    UserOperation,
    add_reason,
    read_json,
    short_id,
)
from moot.operations.proposal_operations import waiting_for_me
from moot.operations.proposal_selection import add_selection, for_each
from moot.operations.text.input_text import questions_in
from moot.protocol.changes import change_lines
from moot.protocol.operation import Json

if TYPE_CHECKING:
    from moot.participant import SeenProposal

_ID = "its id, or the start of it"


# Approving what takes a passkey: a browser has it, so the shell hands a link and waits.

# Somebody opens a page, reads the call and touches a key.
WAIT_SECONDS: Final = 600.0
_LOOPBACK: Final = re.compile(r"//(127\.[\d.]+|\[::1\])(?=[:/]|$)")


def changed_params(seen: SeenProposal, changes: Sequence[str], edited: Json = None) -> dict[str, Json]:
    """The params of a call with `PATH=TEXT` or `PATH:=JSON` put in its arguments; raises UsageError.

    A value takes the type of the one that it replaces: what was a number stays one.
    """
    arguments = _arguments_of(seen) if edited is None else edited
    for word in changes:
        path, equals, text = word.partition("=")
        if not equals or not path.rstrip(":"):
            raise UsageError(f"{word!r} is no change: write PATH=TEXT or PATH:=JSON, as in amount=95")
        arguments = _put(arguments, path.rstrip(":").split("."), path.rstrip(":"), text, path.endswith(":"))
    params = dict(seen.params)
    return params | {"arguments": arguments} if "arguments" in params or "name" in params else arguments


def _arguments_of(seen: SeenProposal) -> Json:
    given = seen.params.get("arguments", {}) if "name" in seen.params else seen.params
    return json.loads(json.dumps(given))


def _put(value: Json, keys: Sequence[str], path: str, text: str, is_json: bool) -> Json:
    if not keys:
        return _typed(value, path, text, is_json)
    key, rest = keys[0], keys[1:]
    if isinstance(value, dict):
        if key not in value and (rest or not is_json):
            # A name that was mistyped would run the call as it was.
            add = "" if rest else f". To add it: {path}:=JSON"
            raise UsageError(f"there is no {path} in its arguments: it has {', '.join(value) or 'none'}{add}")
        return {**value, key: _put(value.get(key), rest, path, text, is_json)}
    if isinstance(value, list) and key.isdecimal() and int(key) < len(value):
        changed = list(value)
        changed[int(key)] = _put(value[int(key)], rest, path, text, is_json)
        return changed
    raise UsageError(f"there is no {path} in its arguments")


def _typed(before: Json, path: str, text: str, is_json: bool) -> Json:
    if isinstance(before, str) and not is_json:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        if before is None and not is_json:
            return text
        what = "JSON" if is_json else f"like {json.dumps(before)[:40]}"
        raise UsageError(f"{path} must be {what}, not {text!r}") from None
    if not is_json and before is not None and _kind(before) is not _kind(value):
        raise UsageError(f"{path} must be like {json.dumps(before)[:40]}, not {text!r}")
    return value


def _kind(value: Json) -> type:
    return float if type(value) is int else type(value)


async def read_changes(
    context: ClientContext, seen: SeenProposal, args: argparse.Namespace
) -> dict[str, Json] | None:
    """The params that a person wants instead of those proposed (`--set`, `--edit`); None: as proposed."""
    if not getattr(args, "set", None) and not getattr(args, "edit", False):
        return None
    seen.check_open()
    if args.again:
        raise UsageError("--again is for exactly the proposed call: approve it with changes, or again")
    edited = None
    if args.edit:
        if context.edit_text is None:
            raise UsageError("no editor can be opened here: use --set PATH=VALUE, or `moot approve --edit`")
        edited = await _edit(seen, context.edit_text)
    return changed_params(seen, args.set, edited)


async def _edit(seen: SeenProposal, edit: Callable[[str], Awaitable[str]]) -> Json:
    text = await edit(json.dumps(_arguments_of(seen), ensure_ascii=False, indent=2) + "\n")
    edited = read_json(text, "what you edited")
    if not isinstance(edited, dict):
        raise UsageError("the arguments must be one JSON object. Nothing was approved")
    return edited


def proposal_address(context: ClientContext, seen: SeenProposal) -> str:
    """Where the console shows it; on this machine by its name, since an address has no passkeys."""
    url = _LOOPBACK.sub("//localhost", context.console_url.rstrip("/"))
    url = re.sub(r"^ws(s?)://", r"http\1://", url)
    space = context.space.space or ""
    return f"{url}/#/{quote(space, safe='')}/approvals/{quote(seen.id, safe='')}"


async def approve_in_console(context: ClientContext, seen: SeenProposal) -> OperationResult:
    """Say where to approve it, and wait until somebody has. Raises TimedOut, and PasskeyRequired where
    nothing can be waited for."""
    address = proposal_address(context, seen) if context.console_url else "the console"
    text = f"{short_id(seen.id)} is approved with a passkey: open {address}"
    if context.on_waiting is None:
        raise PasskeyRequired(text, proposal_id=seen.id)
    context.on_waiting(f"{text}\nwaiting until it is decided there (Ctrl-C stops waiting, not the proposal)")
    seconds = context.timeout_seconds or WAIT_SECONDS
    decided = asyncio.Event()
    seen.watchers.append(decided.set)
    try:
        async with asyncio.timeout(seconds):
            while not seen.is_over:
                decided.clear()
                await decided.wait()
    except TimeoutError:
        raise TimedOut(
            f"nobody approved {short_id(seen.id)} within {seconds:g} s; it is still open"
        ) from None
    finally:
        seen.watchers.remove(decided.set)
    value = {"proposal_id": seen.id, "status": seen.status, "outcome": seen.outcome, "by": seen.fulfilled_by}
    return OperationResult(
        value, [f"{short_id(seen.id)}: {seen.state_text}"], 0 if seen.outcome == "done" else 1
    )


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
    add_reason(parser, "no_longer_needed")


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
        waits=True,
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
