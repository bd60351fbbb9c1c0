"""Made-up people with hidden policies, and the proposals that reach them.

A `World` is one person, one stream of proposals and the policy that nobody but the person knows. Everything
is drawn from one seed: names, folders, limits, hours, how often which tool is proposed.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from moot.protocol.operation import Json
from moot.trust.history.proposal_case import Case, case_of

# 2026-01-05, a Monday, 00:00 UTC; every world starts at some moment of that week.
_MONDAY: Final = 1_767_571_200.0
# Between two proposals, on average: some fourteen a day.
_PAUSE: Final = 6_000.0
_FOLDERS: Final = ("reports", "public", "drafts", "images", "exports", "notes", "logs", "keys", "private")
_ROOTS: Final = ("/srv/data", "/home/team", "/var/share", "/opt/project")
_AGENTS: Final = ("coder", "writer", "planner", "scout", "clerk", "helper")
_TOOLS: Final = ("read_file", "list_folder", "search", "write_file", "delete_file", "run_query")
_PAYEES: Final = ("acme", "globex", "initech", "umbrella", "hooli")
_WORDS: Final = ("the", "plan", "for", "next", "week", "is", "ready", "and", "needs", "another", "look")

Policy = Callable[[Case], bool]
Draw = Callable[[], tuple[str, str, dict[str, Json]]]  # proposer, tool, arguments


@dataclass(frozen=True, slots=True)
class World:
    """One stream and the person who decides on it."""

    draw: Draw
    policy: Policy
    random: random.Random
    # How often the person says the opposite of what they want.
    slips: float = 0.0

    def proposals(self, count: int) -> Iterator[tuple[Case, bool, bool]]:
        """Proposals in time, whether the person wants each, and whether they would say so."""
        at = _MONDAY + self.random.random() * 7 * 86_400
        for number in range(count):
            at += self.random.expovariate(1 / _PAUSE)
            proposer, tool, arguments = self.draw()
            payload = {"method": "tools/call", "params": {"name": tool, "arguments": arguments}}
            case = case_of(f"p{number}", proposer, ("host",), payload, at=at)
            wanted = self.policy(case)
            yield case, wanted, wanted != (self.random.random() < self.slips)


def _text(rng: random.Random) -> str:
    return " ".join(rng.choice(_WORDS) for _ in range(rng.randint(3, 12)))


def _file(rng: random.Random, root: str, folder: str) -> str:
    return f"{root}/{folder}/{rng.choice('abcdef')}{rng.randrange(10_000)}.{rng.choice(('txt', 'csv'))}"


def _files(rng: random.Random, agents: list[str], tools: list[str], folders: list[str], root: str) -> Draw:
    def draw() -> tuple[str, str, dict[str, Json]]:
        path = _file(rng, root, rng.choice(folders))
        return rng.choice(agents), rng.choice(tools), {"path": path, "text": _text(rng)}

    return draw


def by_prefix(rng: random.Random) -> World:
    """Writing is fine under some folders."""
    folders = rng.sample(_FOLDERS, 6)
    root, fine = rng.choice(_ROOTS), set(folders[: rng.randint(2, 4)])
    draw = _files(rng, rng.sample(_AGENTS, 1), ["write_file"], folders, root)
    return World(draw, lambda case: case.arguments["path"].split("/")[3] in fine, rng)


def by_tool(rng: random.Random) -> World:
    """Some tools are fine, whatever they are told; others never."""
    tools = rng.sample(_TOOLS, 4)
    fine = set(tools[: rng.randint(1, 3)])
    draw = _files(rng, rng.sample(_AGENTS, 1), tools, rng.sample(_FOLDERS, 3), rng.choice(_ROOTS))
    return World(draw, lambda case: case.tool in fine, rng)


def _payments(rng: random.Random, agents: list[str], most: int, payees: list[str]) -> Draw:
    def draw() -> tuple[str, str, dict[str, Json]]:
        arguments = {"amount": rng.randint(1, most), "to": rng.choice(payees), "memo": _text(rng)}
        return rng.choice(agents), "pay", arguments

    return draw


def by_amount(rng: random.Random) -> World:
    """Payments up to a limit."""
    most = rng.randint(200, 2_000)
    limit = rng.randint(most // 4, most * 3 // 4)
    draw = _payments(rng, rng.sample(_AGENTS, 1), most, rng.sample(_PAYEES, 2))
    return World(draw, lambda case: bool(case.arguments["amount"] <= limit), rng)


def by_time(rng: random.Random) -> World:
    """Only at certain hours, which may go past midnight."""
    start, hours = rng.randrange(24), rng.randint(6, 14)
    draw = _payments(rng, rng.sample(_AGENTS, 1), 500, rng.sample(_PAYEES, 2))
    return World(draw, lambda case: (case.at / 3600 - start) % 24 < hours, rng)


def by_proposer(rng: random.Random) -> World:
    """Some agents are trusted."""
    agents = rng.sample(_AGENTS, 4)
    fine = set(agents[: rng.randint(1, 3)])
    draw = _files(rng, agents, ["write_file"], rng.sample(_FOLDERS, 2), rng.choice(_ROOTS))
    return World(draw, lambda case: case.proposer in fine, rng)


def by_prefix_and_amount(rng: random.Random) -> World:
    """Two things at once: large files only under one folder, small ones under more."""
    folders = rng.sample(_FOLDERS, 4)
    root, limit = rng.choice(_ROOTS), rng.randint(300, 700)

    def draw() -> tuple[str, str, dict[str, Json]]:
        path = _file(rng, root, rng.choice(folders))
        return "coder", "upload", {"path": path, "size": rng.randint(1, 1_000)}

    def policy(case: Case) -> bool:
        folder: str = case.arguments["path"].split("/")[3]
        small: bool = case.arguments["size"] <= limit
        return folder == folders[0] or (folder == folders[1] and small)

    return World(draw, policy, rng)


def _noisy(make: Callable[[random.Random], World], share: float) -> Callable[[random.Random], World]:
    def noisy(rng: random.Random) -> World:
        world = make(rng)
        return World(world.draw, world.policy, rng, share)

    return noisy


def by_checksum(rng: random.Random) -> World:
    """By something that is a matter of the whole text and of no part of it."""
    draw = _files(rng, rng.sample(_AGENTS, 2), ["write_file"], rng.sample(_FOLDERS, 4), rng.choice(_ROOTS))
    salt = str(rng.random())

    def policy(case: Case) -> bool:
        return hashlib.sha256((salt + case.arguments["path"]).encode()).digest()[0] % 5 < 3

    return World(draw, policy, rng)


def by_mood(rng: random.Random) -> World:
    """By what the person knows and no proposal says."""
    draw = _payments(rng, rng.sample(_AGENTS, 2), 500, rng.sample(_PAYEES, 3))
    mood = random.Random(rng.random())
    return World(draw, lambda _: bool(mood.random() < 0.65), rng)


def by_relation(rng: random.Random) -> World:
    """By two arguments compared with each other."""

    def draw() -> tuple[str, str, dict[str, Json]]:
        return "clerk", "transfer", {"amount": rng.randint(1, 1_000), "balance": rng.randint(1, 1_000)}

    return World(draw, lambda case: case.arguments["amount"] <= case.arguments["balance"], rng)


EXPRESSIBLE: Final[dict[str, Callable[[random.Random], World]]] = {
    "path prefix": by_prefix,
    "tool": by_tool,
    "amount": by_amount,
    "proposer": by_proposer,
    "prefix and size": by_prefix_and_amount,
}
NOISY: Final[dict[str, Callable[[random.Random], World]]] = {
    "path prefix, 3 % slips": _noisy(by_prefix, 0.03),
    "amount, 3 % slips": _noisy(by_amount, 0.03),
}
INEXPRESSIBLE: Final[dict[str, Callable[[random.Random], World]]] = {
    "checksum": by_checksum,
    "mood": by_mood,
    "relation": by_relation,
    "time of day": by_time,
}
