"""Settling what nobody knows: the call that the operator named for it is made, and its answer compared.

    effects:
      pay: {…, reconcile: {tool: get_payment, arguments: {invoice: "{invoice}"},
                           done: {status: paid}, not_done: {status: rejected}, after_seconds: 60}}

The gateway tells that call with its arguments filled in, where an outcome is unknown (`moot/outcome`) and
where another call has the same key (`moot/votes`). What is settled names the answer that proves it. An answer
that matches neither, or both, settles nothing; nor does `not_done` that is not so `after_seconds` later, too.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any, Final, Literal

from moot.errors import MootError
from moot.participant.connection.message_feed import MissedMessages
from moot.participant.joined_space import JoinedSpace
from moot.protocol.argument_template import data_of
from moot.protocol.gateway_proposal import EarlierCall, EffectNote, read_effect_notes
from moot.protocol.operation import Json
from moot.trust.rules.conditions import is_same_json

log = logging.getLogger(__name__)

# Calls that are looked at at once, and what of an answer is told as the proof.
MAX_RECONCILING: Final = 64
_PROOF_CHARS: Final = 500
_CALL_SECONDS: Final = 60.0


class Reconciler:
    """Makes reconciling calls as the approver, with its rights, and settles what their answers prove."""

    def __init__(self, space: JoinedSpace) -> None:
        self._space = space
        self._running: set[str] = set()

    async def run(self) -> None:
        reader = self._space.envelopes(own=False)
        async with asyncio.TaskGroup() as group:
            for seen in self._space.proposals.unknown_outcomes():
                self._start(group, seen.effects, seen.id)
            async for envelope in reader:
                if isinstance(envelope, MissedMessages) or envelope.kind not in (
                    "moot/outcome",
                    "moot/votes",
                ):
                    continue
                named = str(envelope.payload.get("proposal_id")) if envelope.kind == "moot/outcome" else ""
                self._start(group, read_effect_notes(envelope.payload.get("effects")), named)

    def _start(self, group: asyncio.TaskGroup, notes: list[EffectNote], proposal: str) -> None:
        for earlier in (each.earlier for each in notes):
            if earlier is None or earlier.reconcile is None or earlier.outcome != "unknown":
                continue
            if earlier.request_id in self._running or len(self._running) >= MAX_RECONCILING:
                continue
            self._running.add(earlier.request_id)
            group.create_task(self._reconcile(earlier, earlier.reconcile, proposal))

    async def _reconcile(self, earlier: EarlierCall, how: Mapping[str, Any], proposal: str) -> None:
        try:
            found = await self._look(how)
            if found is not None and found[0] == "failed":
                # It may still be on its way. By our own waiting: the clock that dated it may be behind ours.
                await asyncio.sleep(how["after_seconds"])
                found = await self._look(how)
            if found is not None:
                about = proposal or self._proposal_of(earlier.request_id) or earlier.request_id
                payload: dict[str, Json] = {"outcome": found[0], "note": found[1]}
                await self._space.send("moot/settle", payload, about=about, confirm=True)
        except MootError as fault:
            log.info("not reconciled", extra={"request": earlier.request_id, "why": str(fault)})
        finally:
            self._running.discard(earlier.request_id)

    def _proposal_of(self, request: str) -> str:
        unknown = self._space.proposals.unknown_outcomes()
        return next((seen.id for seen in unknown if seen.request_id == request), "")

    async def _look(self, how: Mapping[str, Any]) -> tuple[Literal["done", "failed"], str] | None:
        """What the operator's call proves, with the proof."""
        params: dict[str, Json] = {"name": how["tool"], "arguments": how["arguments"]}
        result = await self._space.request(how["to"], "tools/call", params, timeout_seconds=_CALL_SECONDS)
        data = data_of(result)
        is_done, is_not = _has(data, how["done"]), _has(data, how["not_done"])
        if is_done == is_not:
            return None
        told = json.dumps(how["done"] if is_done else how["not_done"], ensure_ascii=False)[:_PROOF_CHARS]
        call = f"{how['tool']} {json.dumps(how['arguments'], ensure_ascii=False)}"[:_PROOF_CHARS]
        return "done" if is_done else "failed", f"{call} on {how['to']} answered {told}"


def _has(data: Json, wanted: Json) -> bool:
    """Whether the wanted members are in it, with exactly these values."""
    if not isinstance(wanted, dict) or not isinstance(data, dict):
        return False
    return all(
        name in data
        and (is_same_json(data[name], value) or (isinstance(value, dict) and _has(data[name], value)))
        for name, value in wanted.items()
    )
