"""Seeing what a proposed call would change, and taking back what was applied."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from moot.errors import UsageError
from moot.operations.call_operations import result_lines
from moot.operations.operation import ClientContext, OperationResult, UserOperation, short_id
from moot.protocol.operation import Json
from moot.protocol.preview_report import PREVIEW_METHOD, UNDO_METHOD, read_preview

if TYPE_CHECKING:
    from moot.participant import SeenProposal
    from moot.protocol.preview_report import PreviewReport

_ID = "its id, or the start of it"


def preview_lines(seen: SeenProposal) -> list[str]:
    """What its preview says, while it can be decided."""
    return _in_words(seen.preview, seen) if seen.preview is not None and seen.status == "pending" else []


def _in_words(report: PreviewReport, seen: SeenProposal) -> list[str]:
    undo = [f"to undo it then: moot undo {short_id(seen.id)}"] if report.can_be_undone else []
    return [*report.lines(), *undo]


def preview_record(seen: SeenProposal) -> Json:
    """For programs; null: no preview was told."""
    return None if seen.preview is None else seen.preview.as_json()


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("proposal", metavar="ID", help=_ID)


async def _preview(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    seen = _of_one_member(context, args.proposal)
    answer = await context.space.request(
        seen.to, PREVIEW_METHOD, {"proposal": seen.id}, timeout_seconds=context.timeout_seconds
    )
    try:
        report = read_preview(answer.get("report"))
    except ValueError as fault:
        raise UsageError(f"{seen.to[0]} sent no preview: {fault}") from None
    lines = _in_words(report, seen)
    listed = answer.get("differences")
    for each in listed if isinstance(listed, list) else []:
        if isinstance(each, dict) and isinstance(each.get("lines"), list):
            lines += ["", str(each.get("path")), *(f"  {line}" for line in each["lines"])]
    result = answer.get("result")
    if isinstance(result, dict):
        lines += ["", "it answers:", *(f"  {line}" for line in result_lines(result))]
    return OperationResult({"proposal_id": seen.id, **answer}, lines)


async def _undo(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    seen = _of_one_member(context, args.proposal)
    outcome = await context.space.perform(
        seen.to,
        UNDO_METHOD,
        {"proposal": seen.id},
        timeout_seconds=context.timeout_seconds,
        on_proposed=context.on_proposed,
    )
    value: dict[str, Json] = {"proposal_id": seen.id, "member": outcome.host, "result": outcome.result}
    return OperationResult(value, [f"{short_id(seen.id)}: {line}" for line in result_lines(outcome.result)])


def _of_one_member(context: ClientContext, id: str) -> SeenProposal:
    seen = context.proposal(id)
    if len(seen.to) != 1:
        raise UsageError(f"{short_id(seen.id)} names no single member, so it has no preview")
    return seen


OPERATIONS = (
    UserOperation(
        name="preview",
        help="show what a proposed call would change, with differences",
        description="Shows what a proposed call does to files, tried in an overlay of its server's folders: "
        "nothing is changed, nothing is connected to. Everybody in the space reads the answer. "
        "`moot approve` then applies exactly that effect, or nothing.",
        examples="  moot preview 3f1c22ab\n  moot preview 3f1c22ab --json | jq .report.effect\n",
        arguments=_arguments,
        run=_preview,
        waits=True,
        needs_history=True,
    ),
    UserOperation(
        name="undo",
        help="take back what an approved call changed in files",
        description="Takes back what was applied from a preview, while the files are as it left them; "
        "otherwise nothing is done, and it says what differs. Without the permission it is proposed.",
        examples="  moot undo 3f1c22ab\n",
        arguments=_arguments,
        run=_undo,
        waits=True,
        needs_history=True,
    ),
)
