"""Making a call good: propose the call that the operator named for it, filled in from what ran."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from moot.errors import UsageError
from moot.operations.operation import ClientContext, OperationResult, UserOperation, short_id
from moot.protocol.argument_template import NotThere, data_of, fill
from moot.protocol.gateway_proposal import CompensatingCall
from moot.protocol.operation import Json

if TYPE_CHECKING:
    from moot.participant import SeenProposal


def compensating_call(context: ClientContext, seen: SeenProposal) -> tuple[str, dict[str, Json]]:
    """Whom to ask for what; raises UsageError with what stands in the way."""
    from moot.protocol.patterns import read_capability
    from moot.space.proposals.quorum import binds_call

    if seen.outcome not in ("done", "unknown"):
        raise UsageError(f"{short_id(seen.id)} was not carried out: there is nothing to make good")
    payload = {"method": seen.method, "params": seen.params} if seen.changed is None else seen.changed
    rules = [
        each
        for each in context.space.proposals.effects
        if each.compensate is not None and binds_call(read_capability(each.calls), payload, seen.to)
    ]
    if not rules:
        raise UsageError("no call is named that makes this good (`effects` of the space, compensate)")
    template: CompensatingCall = rules[0].compensate  # type: ignore[assignment]  # looked at above
    params = payload.get("params")
    source = dict(params.get("arguments") or {}) if isinstance(params, dict) else {}
    try:
        arguments = fill(template.arguments, {**source, "result": data_of(seen.result)})
    except NotThere as fault:
        raise UsageError(f"{template.tool} cannot be filled in from what ran: {fault}") from None
    host = template.to or (seen.host or next(iter(seen.asked or seen.to), ""))
    return host, {"name": template.tool, "arguments": arguments}


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("proposal", metavar="ID", help="the approved call: its id, or the start of it")


async def _compensate(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    seen = context.proposal(args.proposal)
    # What makes it good is in the configuration of the space, which may have changed.
    await context.space.refresh_proposals()
    host, params = compensating_call(context, seen)
    made = await context.space.propose(
        host, "tools/call", params, about=seen.id, stay_open=True, wait_for_others=True
    )
    value: dict[str, Json] = {"proposal_id": made.id, "to": host, "params": params, "compensates": seen.id}
    return OperationResult(
        value, [f"proposed {short_id(made.id)}: {params['name']} on {host}; others decide"]
    )


OPERATIONS = (
    UserOperation(
        name="compensate",
        help="propose the call that makes an approved one good",
        description="Proposes the compensating call that the configuration of the space names (`effects`), "
        "filled in from the arguments and the result of the call that ran. Others decide on it.",
        examples="  moot proposals --all\n  moot compensate 3f1c22ab\n",
        arguments=_arguments,
        run=_compensate,
        waits=True,
        needs_history=True,
    ),
)
