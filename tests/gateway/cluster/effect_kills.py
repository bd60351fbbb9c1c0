"""kill -9 of gateways and NATS servers of a real cluster while somebody pays, and pays again: never twice.

Three members pay the same invoice at three gateways at once, spelled differently; one process is killed
meanwhile. What got no answer is sent again, to the next gateway, until somebody answers, and then all three
pay once more, as an agent does that lost the reply. Half of the payments are answered as done, the others
stay open.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, ClassVar

import uvloop

from moot.protocol.operation import Json
from tests.gateway.cluster.cluster_faults import kill_gateway, kill_nats
from tests.gateway.cluster.cluster_rounds import NAMES, ClusterRounds
from tests.gateway.effect_rounds import RULES, pay

_PAYERS = ("alice", "bob", "carol")
_ASKED = ("approval_required", "")
# Of so many rounds, one kills a NATS server and not a gateway.
_NATS_EACH = 5


class EffectKills(ClusterRounds):
    """The payments of all rounds, and which requests for each were let through."""

    rules: ClassVar[Json] = RULES

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed, None)
        self.killed: Counter[str] = Counter()
        # Which were answered as let through, and which the bank heard.
        self.told: defaultdict[int, set[str]] = defaultdict(set)
        self.heard: defaultdict[int, set[str]] = defaultdict(set)
        self._numbers = itertools.count(1)

    async def kill(self, number: int) -> None:
        spelled = [f"INV-{number}", f"inv-{number} ", f"Inv\u2013{number}"]
        act, what = (kill_nats, "NATS") if number % _NATS_EACH == 0 else (kill_gateway, "gateways")
        async with asyncio.timeout(300), asyncio.TaskGroup() as group:
            for place, (who, invoice) in enumerate(zip(_PAYERS, spelled, strict=True)):
                group.create_task(self._pay(number, who, invoice, place))
            await asyncio.sleep(self.random.uniform(0, 0.1))
            await act(self)
        self.killed[what] += 1
        if number % 2 and self.told[number]:
            done: Json = {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}
            about: list[Json] = [*self.told[number]]
            answer: dict[str, Json] = {"id": f"done-{number}", "kind": "mcp/response", "payload": done}
            await self.post("tom", answer | {"to": ["alice"], "correlation_id": about}, number)
        await asyncio.gather(
            *(self._pay(number, who, spelled[0], place) for place, who in enumerate(_PAYERS, number))
        )

    async def _pay(self, number: int, who: str, invoice: str, place: int) -> None:
        id = f"pay-{next(self._numbers)}"
        call: dict[str, Json] = {"id": id, "kind": "mcp/request", "payload": pay(number, [invoice, "ACME"])}
        code = await self.post(who, call | {"to": ["tom"]}, place)
        if code == "target_absent":
            return
        # It may have been taken by a gateway that could not say so any more.
        assert code in (*_ASKED, "duplicate_id"), code
        if code != "approval_required":
            self.told[number].add(id)

    def _note(self, name: str, seen: list[str], message: Any) -> None:
        if isinstance(message, dict) and message["kind"] == "mcp/request":
            self.heard[message["payload"]["params"]["arguments"]["n"]].add(message["id"])
        elif not isinstance(message, dict):
            super()._note(name, seen, message)

    def faults(self) -> list[str]:
        """Payments that were let through more than once, by anybody's word, or of which nobody knows."""
        let_through: defaultdict[int, set[str]] = defaultdict(set)
        for name in (*NAMES, "z"):
            for record in self._journal(name, "lab"):
                if record["kind"] == "mcp/request":
                    let_through[record["raw"]["payload"]["params"]["arguments"]["n"]].add(record["id"])
        faults = []
        for number in sorted({*let_through, *self.told, *self.heard}):
            requests = let_through[number] | self.told[number] | self.heard[number]
            faults += [f"{number} was paid by {sorted(requests)}"] if len(requests) > 1 else []
            lost = self.told[number] - let_through[number]
            faults += [f"{sorted(lost)} was told, and no journal has it"] if lost else []
        self.paid = sum(bool(each) for each in let_through.values())
        return faults


class _WithoutKeys(EffectKills):
    """The same without what prevents it, so that the check is seen to see it."""

    rules: ClassVar[Json] = {}


def run_effect_key_kills(cases: int, seed: int) -> str:
    """For `make soak`."""
    with tempfile.TemporaryDirectory(prefix="moot-effect-kills-") as folder:
        blind = _WithoutKeys(Path(folder), seed)
        try:
            uvloop.run(blind.run(blind.kill, 1))
        except AssertionError as fault:
            assert "was paid by" in str(fault), fault  # noqa: PT017  # no test, and any other fault is one
        else:
            raise AssertionError("the check does not see payments that were made twice")
    with tempfile.TemporaryDirectory(prefix="moot-effect-kills-") as folder:
        rounds = EffectKills(Path(folder), seed)
        uvloop.run(rounds.run(rounds.kill, cases))
        assert rounds.paid > cases * 0.8, f"only {rounds.paid} of {cases} were paid at all"
    killed = ", ".join(f"{count} {what}" for what, count in sorted(rounds.killed.items()))
    return f"{rounds.paid} payments, each tried six times at three gateways, killed {killed}: none paid twice"
