"""Rounds in which something goes wrong with a payment, and somebody pays again: how often was it paid twice?

The same plan is for Moot (`play`) and for others (`bench/effects.py`).
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Final

from moot.protocol.operation import Json
from tests.gateway.running_gateway import (
    Client,
    gateway_settings,
    participants,
    space_settings,
    write_config,
)
from tests.gateway.served import Served, started

# The answer is lost; the gateway dies before it has it; the bank dies before it pays; two pay at once; all is
# well, and the second is spelled another way.
FAULTS: Final = ("lost", "killed", "gone", "twice", "respelled")
RULES: Final[Json] = {"effects": {"pay": {"tool": "pay", "key": "{invoice}/{payee}"}}}
PEOPLE: Final = participants(ana=["*"], agent=["mcp/*"], other=["mcp/*"], bank=["mcp/response"])


def plan(count: int, seed: int, killed_share: float = 1.0) -> list[dict[str, Json]]:
    """What happens in each round; `killed_share` leaves out some of those that start a process anew."""
    chosen = random.Random(seed)
    rounds: list[dict[str, Json]] = []
    for number in range(count):
        fault = FAULTS[number % len(FAULTS)]
        if fault == "killed" and chosen.random() >= killed_share:
            fault = "lost"
        invoice, payee = f"INV-{seed}-{number}", chosen.choice(["ACME", "Öl & Söhne", "zoe"])
        again = [invoice, payee]
        if fault == "respelled":
            spell = chosen.choice([str.lower, str.title, lambda text: f" {text} ", _wide, _dashed])
            again = [spell(invoice), spell(payee)]
        rounds.append({"n": number, "fault": fault, "first": [invoice, payee], "second": again})
    return rounds


def _wide(text: str) -> str:
    return "".join(chr(ord(each) + 0xFEE0) if "!" <= each <= "~" else each for each in text)


def _dashed(text: str) -> str:
    return text.replace("-", "\u2013")


def pay(number: int, words: list[str]) -> Json:
    arguments = {"invoice": words[0], "payee": words[1], "n": number}
    return {"method": "tools/call", "params": {"name": "pay", "arguments": arguments}}


class Bank:
    """A gateway in a process of its own, two agents, and a bank that pays whatever it is asked to."""

    def __init__(self, folder: Path) -> None:
        settings = gateway_settings({"lab": space_settings(PEOPLE, **dict(RULES))})
        self.file = write_config(folder, settings)
        self.paid: Counter[int] = Counter()
        self.running: Served
        self.members: dict[str, Client] = {}

    async def start(self) -> None:
        self.running = await started(self.file)
        for name in ("agent", "other", "bank"):
            self.members[name] = await self.running.join(name)

    async def end(self, number: int = signal.SIGTERM) -> None:
        await self.running.close()
        await self.running.end(number)

    async def pays(self) -> str:
        """The bank is asked, and pays."""
        asked = await self.members["bank"].hear("mcp/request")
        self.paid[asked["payload"]["params"]["arguments"]["n"]] += 1
        return str(asked["id"])

    async def play(self, round: dict[str, Json]) -> None:
        number, fault, body = round["n"], round["fault"], pay(round["n"], round["first"])
        agent, other, bank = (self.members[name] for name in ("agent", "other", "bank"))
        if fault == "twice":
            tries = [each.refused("mcp/request", body, to=["bank"]) for each in (agent, other)]
            for _ in range((await asyncio.gather(*tries)).count(None)):
                await self.pays()
        else:
            assert await agent.refused("mcp/request", body, to=["bank"]) is None
            if fault == "gone":
                await bank.hear("mcp/request")
            else:
                request = await self.pays()
            if fault == "respelled":
                answer: Json = {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}
                assert await bank.refused("mcp/response", answer, to=["agent"], about=[request]) is None
            elif fault == "killed":
                await self.end(signal.SIGKILL)
                await self.start()
            else:
                await bank.leave()
                self.members["bank"] = await self.running.join("bank")
        again = pay(number, round["second"])
        if await self.members["other"].refused("mcp/request", again, to=["bank"]) is None:
            await self.pays()


async def play(folder: Path, rounds: list[dict[str, Json]]) -> Counter[int]:
    """How often each round's payment was made."""
    bank = Bank(folder)
    await bank.start()
    for round in rounds:
        await bank.play(round)
    await bank.end()
    return bank.paid
