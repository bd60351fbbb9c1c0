"""Looking after a space: who is here, invitations, grants, removals, pauses and the other controls."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from moot.errors import MootError, UsageError
from moot.operations.grant_scope import limit_to_places
from moot.operations.operation import (
    CAPABILITIES,
    ClientContext,
    OperationResult,
    SignInLink,
    UserOperation,
    add_reason,
    list_result,
    no_arguments,
    read_capability_text,
    short_id,
)
from moot.operations.text.capability_text import in_words
from moot.operations.text.text_table import TextTable
from moot.protocol.operation import Json
from moot.resilience.durations import HOW_LONG, parse_positive_duration

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from moot.participant.conversation.transcript import Direction


async def _members(context: ClientContext, _: argparse.Namespace) -> OperationResult:
    space = context.space
    own = [each.original for each in space.rights.capabilities]
    rows: list[dict[str, Json]] = [{"id": space.me, "name": space.name, "you": True, "capabilities": own}]
    rows += [
        {
            "id": member.id,
            "name": member.name,
            "you": False,
            "capabilities": [each.original for each in member.capabilities],
        }
        for member in space.roster.values()
    ]
    table = TextTable(
        ("NAME", "PERMISSIONS"),
        [(f"{row['id']} (you)" if row["you"] else row["id"], _rights(row["capabilities"])) for row in rows],
    )
    return list_result(rows, table, "nobody is in the space")


def _rights(capabilities: list[Json]) -> str:
    """Rights in a line; what is no more than a kind is shown as that, the rest in words."""
    shown: list[str] = []
    for each in capabilities:
        if isinstance(each, dict) and set(each) == {"kind"}:
            kinds = each["kind"]
            shown += [str(kind) for kind in (kinds if isinstance(kinds, list) else [kinds])]
        else:
            shown.append(each if isinstance(each, str) else in_words(each))
    return ", ".join(shown) or "no permissions visible"


def _invite_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", metavar="NAME", help="the name of the new participant")
    add(
        "capabilities",
        nargs="*",
        metavar="CAPABILITY",
        help="what it may do (default: talk, list tools, propose)",
    )
    add("--email", metavar="ADDRESS", help="let the gateway send the token by mail, if configured")
    add_reason(parser)
    add("--token-out", type=Path, metavar="FILE", help="write the token there instead of printing it")
    add("--link", action="store_true", help="also print a link to the console for a person, and its QR code")


async def _invite(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    if args.link and context.make_link is None:
        raise UsageError(f"links are made in a shell: moot member invite {args.name} --link")
    wanted = [read_capability_text(text) for text in args.capabilities] or _invitee_rights(context)
    file: Path | None = args.token_out
    # Before anybody is invited: a token that cannot be kept would be lost.
    handle = None if file is None else _new_secret(file)
    made = None
    try:
        made = await context.space.admin.invite(args.name, wanted, email=args.email, reason=args.reason)
        if made.token is None:
            if made.status == "already_exists":
                raise MootError(
                    f"{args.name} was not invited: a participant with that name exists. Choose another name"
                )
            raise MootError(f"{args.name} was not invited: {made.message or made.status}")
        if handle is not None:
            os.write(handle, f"{made.token}\n".encode("ascii"))
    finally:
        if handle is not None:
            os.close(handle)
        if file is not None and (made is None or made.token is None):
            file.unlink()
    where = f" at {made.connection_url}" if made.connection_url else ""
    lines = [f"{made.participant_id} can join{where}"]
    value: dict[str, Json] = {
        "status": made.status,
        "member": made.participant_id,
        "connection_url": made.connection_url,
    }
    if file is not None:
        value["token_file"] = str(file)
        lines.append(f"token written to {file}")
    else:
        # Shown once, to whoever invited: that is what an invitation is for.
        value["token"] = made.token
        lines.append(f"token (shown only once): {made.token}")
    if args.link and context.make_link is not None:
        await _add_link(context.make_link(made.token), args.name, value, lines)
    return OperationResult(value, lines)


def _invitee_rights(context: ClientContext) -> list[Json]:
    """What a program needs that proposes or offers tools, as far as we may give it: it changes nothing."""
    wanted: list[Json] = [{"kind": "chat"}, {"kind": "mcp/proposal"}]
    wanted += [
        {"kind": kind}
        for kind in ("mcp/withdraw", "mcp/response", "participant/status", "reasoning/*")
        if context.space.may(kind.replace("*", "start"))
    ]
    if context.space.may("mcp/request", {"method": "tools/list"}):
        # As the profile proposal-only has it: who proposes may list.
        wanted.append({"kind": "mcp/request", "payload": {"method": "*/list"}})
    return wanted


async def _add_link(
    asking: Awaitable[tuple[SignInLink, str]], name: str, value: dict[str, Json], lines: list[str]
) -> None:
    """Add the link to what is printed; the invitation holds without it, too."""
    try:
        link, qr = await asking
    except MootError as fault:
        lines.append(f"no link: {fault}")
        value["link"] = None
        return
    value["link"] = link.address
    lines += [f"a link for {name}: {link.address}", *link.lines(), qr]


def _new_secret(file: Path) -> int:
    try:
        return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        raise UsageError(f"{file} already exists: name a new file for the token") from None
    except OSError as fault:
        raise UsageError(f"{file} cannot be written: {fault.strerror}") from None


def _grant_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("member", metavar="MEMBER", help="who gets the permission")
    add("capabilities", nargs="+", metavar="CAPABILITY", help="what they may do from now on")
    add(
        "--below",
        action="append",
        default=[],
        metavar="NAME=PLACE",
        help="only where this argument is an address or a path below PLACE, which ends in /: "
        "url=https://example.org/docs/ or path=notes/",
    )
    add_reason(parser)
    add("--for", dest="seconds", type=parse_positive_duration, metavar="TIME", help=HOW_LONG)
    add("--uses", type=int, metavar="NUMBER", help="how many messages it allows; 1 allows one call")


async def _grant(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    wanted = [limit_to_places(read_capability_text(text), args.below) for text in args.capabilities]
    given = await context.space.admin.grant(
        args.member,
        wanted,
        reason=args.reason,
        expires_in_seconds=args.seconds,
        max_uses=args.uses,
        ack_timeout_seconds=context.timeout_seconds or 2.0,
    )
    acknowledgement = given.acknowledged or "not acknowledged, but in effect"
    undo = f"moot member revoke {args.member} --grant {given.id}"
    value: Json = {"id": given.id, "member": given.recipient, "acknowledged": given.acknowledged}
    return OperationResult(value, [f"granted to {args.member} ({acknowledgement}); undo: {undo}"])


def _revoke_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("member", metavar="MEMBER", help="who loses the permission")
    add("capabilities", nargs="*", metavar="CAPABILITY", help="revoke every grant that these cover")
    add("--grant", metavar="ID", help="revoke this grant")
    add_reason(parser)


async def _revoke(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    wanted = [read_capability_text(text) for text in args.capabilities]
    if bool(wanted) == (args.grant is not None):
        raise UsageError("name either --grant ID for one grant, or capabilities for every grant they cover")
    covered = _covered(context, args.member, wanted)
    done = await context.space.admin.revoke(
        args.member, grant_id=args.grant, capabilities=wanted or None, reason=args.reason
    )
    # The gateway reports what remains, not what it removed: that follows from what was held before.
    removed: list[Json] | None = None if covered is None else [r for r in covered if r not in done.remaining]
    value: Json = {"id": done.id, "member": done.recipient, "removed": removed, "remaining": done.remaining}
    lines = [f"revoked from {args.member}"]
    if wanted and removed is None and not done.remaining:
        lines = [f"{args.member} holds nothing that this covers any more"]
    elif wanted and not removed:
        lines = [f"nothing was removed: no grant to {args.member} is covered by this"]
    if done.remaining:
        lines.append(f"still held from other sources: {_rights(done.remaining)}")
    failed = bool(wanted) and not removed and (removed is not None or bool(done.remaining))
    return OperationResult(value, lines, 1 if failed else 0)


def _covered(context: ClientContext, member: str, patterns: list[Json]) -> list[Json] | None:
    """The rights of a member that the patterns cover; None of one that is not connected."""
    from moot.protocol.patterns import covers, read_capability

    if member not in context.space.roster:
        return None
    read = [read_capability(pattern) for pattern in patterns]
    held = context.space.roster[member].capabilities
    return [each.original for each in held if any(covers(pattern, each) for pattern in read)]


def _member_and_reason(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("member", metavar="MEMBER", help="who")
    add_reason(parser)


async def _kick(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    sent = await context.space.admin.kick(args.member, args.reason)
    return OperationResult({"id": sent.id}, [f"{args.member} was removed, and its token is revoked"])


def _pause_arguments(parser: argparse.ArgumentParser) -> None:
    _member_and_reason(parser)
    parser.add_argument("--for", dest="seconds", type=parse_positive_duration, metavar="TIME", help=HOW_LONG)


async def _pause(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    sent = await context.space.admin.pause(args.member, reason=args.reason, timeout_seconds=args.seconds)
    until = "until resumed" if args.seconds is None else f"for {args.seconds:g} s"
    return OperationResult({"id": sent.id}, [f"{args.member} is paused {until}"])


def _member_only(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("member", metavar="MEMBER", help="who")


async def _resume(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    sent = await context.space.admin.resume(args.member)
    return OperationResult({"id": sent.id}, [f"{args.member} resumed"])


def _status_arguments(parser: argparse.ArgumentParser) -> None:
    _member_only(parser)
    parser.add_argument("fields", nargs="*", metavar="FIELD", help="only these metrics")


async def _status(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    reply = await context.space.admin.request_status(
        args.member, args.fields or None, timeout_seconds=context.timeout_seconds
    )
    return OperationResult(reply, [f"{name}: {json.dumps(value)}" for name, value in reply.items()])


async def _shutdown(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    sent = await context.space.admin.shutdown(args.member, reason=args.reason)
    return OperationResult({"id": sent.id}, [f"{args.member} was asked to shut down ({short_id(sent.id)})"])


def _capabilities_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("member", nargs="?", metavar="MEMBER", help="whose permissions (default: yours)")


async def _capabilities(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    space, named = context.space, args.member
    if named is None or named in (space.me, space.name):
        named, held = space.me, space.rights.capabilities
    elif named in space.roster:
        held = space.roster[named].capabilities
    else:
        raise UsageError(f"{named} is not in the space: /members lists the members")
    shown = [each.original for each in held]
    lines = [f"{named} may:", *(f"  {in_words(each)}" for each in shown)] if shown else []
    return OperationResult(shown, lines or [f"{named} has no permissions visible to you"])


_ACTIONS = ("forget", "compact", "clear", "restart", "shutdown")


def _control_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("action", choices=_ACTIONS, metavar="ACTION", help=", ".join(_ACTIONS))
    add("member", metavar="MEMBER", help="who")
    add_reason(parser)
    add("--newest", action="store_true", help="forget: the newest entries, not the oldest")
    add("--entries", type=int, metavar="N", help="forget: how many entries")
    add("--target-tokens", type=int, metavar="N", help="compact: to this many tokens")


async def _control(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    space, member, timeout = context.space, args.member, context.timeout_seconds
    match args.action:
        case "forget":
            end: Direction = "newest" if args.newest else "oldest"
            reply = (await space.admin.forget(member, end, args.entries, timeout_seconds=timeout)).payload
        case "compact":
            reply = await space.admin.compact(
                member, reason=args.reason, target_tokens=args.target_tokens, timeout_seconds=timeout
            )
        case "clear":
            reply = (await space.admin.clear(member, timeout_seconds=timeout)).payload
        case "restart":
            reply = (await space.admin.restart(member, timeout_seconds=timeout)).payload
        case _:
            sent = await space.admin.shutdown(member, reason=args.reason)
            return OperationResult(
                {"id": sent.id}, [f"{member} was asked to shut down ({short_id(sent.id)})"]
            )
    return OperationResult(dict(reply), [f"{member}: {json.dumps(reply, ensure_ascii=False)}"])


OPERATIONS = (
    UserOperation(
        name="members",
        help="list the members and their permissions",
        examples="  moot members\n  moot members --json | jq '.[].name'\n",
        arguments=no_arguments,
        run=_members,
    ),
    UserOperation(
        name="invite",
        help="invite a new participant and print its token",
        description="Creates a new participant and prints its token. For a person, --link also prints a link"
        f" that signs them in to the console in their own browser.\n\n{CAPABILITIES}",
        examples="  moot member invite ana chat mcp/request mcp/reject --link      a colleague who decides\n"
        "  moot member invite bob chat mcp/proposal --token-out bob.token     a program that proposes\n",
        arguments=_invite_arguments,
        run=_invite,
    ),
    UserOperation(
        name="grant",
        help="grant a member permissions that you hold",
        description=f"Grants a member permissions that you hold yourself.\n\n{CAPABILITIES}",
        examples="  moot member grant agent mcp/request:tools/call:read_file --reason 'proved reliable'\n"
        "  moot member grant agent mcp/request:tools/call:write_file --for 1h --uses 3\n"
        "  moot member grant agent mcp/request:tools/call:fetch --below url=https://example.org/docs/\n",
        arguments=_grant_arguments,
        run=_grant,
        waits=True,
    ),
    UserOperation(
        name="revoke",
        help="revoke granted permissions",
        description=f"Revokes one grant, or every grant that the given capabilities cover.\n\n{CAPABILITIES}",
        examples="  moot member revoke agent --grant 5d1e…\n  moot member revoke agent 'mcp/request'\n",
        arguments=_revoke_arguments,
        run=_revoke,
    ),
    UserOperation(
        name="kick",
        help="remove a member from the space for good",
        examples="  moot member kick bob --reason 'thank you'\n",
        arguments=_member_and_reason,
        run=_kick,
    ),
    UserOperation(
        name="pause",
        help="pause a member: it can send nothing until resumed",
        examples="  moot member pause agent --reason 'let me look at this' --for 300\n",
        arguments=_pause_arguments,
        run=_pause,
    ),
    UserOperation(
        name="resume",
        help="resume a paused member",
        examples="  moot member resume agent\n",
        arguments=_member_only,
        run=_resume,
    ),
    UserOperation(
        name="shutdown",
        help="ask a member to shut down",
        arguments=_member_and_reason,
        run=_shutdown,
        interactive_only=True,
    ),
    UserOperation(
        name="capabilities",
        help="list the permissions of a member in words",
        arguments=_capabilities_arguments,
        run=_capabilities,
        interactive_only=True,
    ),
    UserOperation(
        name="status",
        help="ask a member for its status",
        examples="  moot member status agent\n  moot member status agent tokens\n",
        arguments=_status_arguments,
        run=_status,
        waits=True,
    ),
    UserOperation(
        name="control",
        help="make a member forget, compact, clear, restart or shut down",
        description="Sends one of the other controls to a member and prints its answer.",
        examples="  moot member control compact agent --target-tokens 2000\n"
        "  moot member control shutdown agent\n",
        arguments=_control_arguments,
        run=_control,
        waits=True,
    ),
)
