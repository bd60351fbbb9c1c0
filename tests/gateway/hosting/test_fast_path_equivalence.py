"""Two gateways, one with the fast path and one without, run the same random stories and cannot be told apart.

A story is a list of steps drawn from a seed, before anybody plays it. What is compared after each chapter is
all that `SocketlessGateway.seen` sees: what every session was written, the journal, the state, the
history, the metrics; and all of it once more after both gateways were started again from disk.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import pytest

from moot.config import hash_token
from moot.errors import Refused
from moot.gateway.sign_in.short_lived_tokens import mint_token
from moot.protocol.dialects import DIALECTS
from moot.protocol.operation import Json
from moot.protocol.patterns import read_capabilities
from moot.space.config import Name
from moot.space.effects import Reply
from moot.space.members.member import Options, capability_pairs
from moot.space.tokens.temporary_tokens import SignIn, TemporaryToken
from tests.gateway.running_gateway import CALL, gateway_settings, participants, space_settings
from tests.gateway.socketless_gateway import (
    ODD,
    SECOND,
    SocketlessGateway,
    SocketlessSession,
    check_same,
    encode,
    members,
    socketless_gateway,
)
from tests.waiting import until

NAMES: Final = ("alice", "bob", "carol", "dora")
# The first ones are what busy spaces say; the others are let through the slow path, or refused.
PLAIN_KINDS: Final = ("chat", "chat", "chat", "reasoning/thought", "reasoning/start", "chat/cancel")
OTHER_KINDS: Final = (
    "x/vendor",
    "",
    "system/welcome",
    "participant/status",
    "chat/acknowledge",
    "stream/open",
)
RIGHTS: Final = ("chat", "reasoning/*", "mcp/*", "x/*", "participant/*", "capability/*")
PEOPLE: Final = {
    "alice": ["*"],
    "bob": ["chat", "chat/*", "reasoning/*", "mcp/*", "x/*", "stream/*", "participant/pause"],
    "carol": ["chat", {"kind": "reasoning/*", "payload": {"text": "this*"}}, "capability/*", "space/*"],
    "dora": [{"kind": "chat", "to": ["alice"]}, "reasoning/thought", "mcp/proposal"],
}
SIGNED_IN: Final = ("ana", "abe")
# Of a grant.
SOON: Final[dict[str, Json]] = {"expires_in_seconds": 0.2}
# Rates that nobody comes near.
FREELY: Final[dict[str, Json]] = {
    "messages_per_second": 1e6,
    "bytes_per_second": 1e12,
    "shutdown_grace_seconds": 0.2,
}


def settings(
    rules: Json = None, limits: Json = None, rights: Json = None, **gateway: Json
) -> dict[str, Json]:
    people = participants(**(PEOPLE | (rights or {})))
    people["bob"]["tokens"].append({"token": "t-bob-less", "capabilities": [{"kind": "chat"}]})
    space = space_settings(people, limits=FREELY | (limits or {}), **(rules or {}))
    common: dict[str, Json] = {"errors_per_second": 1e6, "snapshot_records": 40}
    return gateway_settings({"lab": space}, **(common | gateway))


# What a reload brings, in the words of `settings`.
RULES: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"rights": {"bob": ["mcp/*"], "carol": ["chat", "reasoning/*"]}},
    {"limits": {"max_bytes": 300}},
    {"limits": {"max_recent_ids": 7}},
    {"limits": {"messages_per_second": 0, "bytes_per_second": 0}},
    {"rules": {"unmapped": "drop", "ack_delivery": "author"}},
    {"rules": {"reference_compat": True, "violation_notice": True}},
)
# Rates that are exceeded by the third message or the second, and then for half a second and more.
PACES: Final[tuple[dict[str, Any], ...]] = ({"messages_per_second": 2}, {"bytes_per_second": 60})


class Join(NamedTuple):
    name: str
    query: str = ""
    token: str = ""


class Leave(NamedTuple):
    session: int


class Say(NamedTuple):
    """`line` makes the message for whoever sits there: their own name is in it."""

    session: int
    line: Callable[[str], bytes]
    binary: bool = False
    # Whether what comes of it is waited for; most of the time the next step comes in the same tick.
    rest: bool = False


class Frame(NamedTuple):
    """A stream frame to the n-th stream that is open, or to none."""

    session: int
    stream: int
    binary: bool


class Post(NamedTuple):
    name: str
    line: Callable[[str], bytes]


class Operator(NamedTuple):
    name: str
    act: str
    right: str


class Reload(NamedTuple):
    settings: Json


class Hurry(NamedTuple):
    """Some messages that come at once under one of `PACES`; nobody owes anything before or after."""

    settings: Json
    steps: tuple[Say, ...]


class Time(NamedTuple):
    """Until pauses, grants and last words that end soon have ended, and whoever was made to go has gone."""


class Mint(NamedTuple):
    """A short-lived token, for all that its member may or for one right; `token` is what others call it."""

    token: str
    name: str
    only: str


class Identify(NamedTuple):
    """Somebody signs in elsewhere; None: as a participant of the configuration."""

    token: str
    name: str
    rights: tuple[str, ...] | None


class Renew(NamedTuple):
    token: str


class SignOut(NamedTuple):
    name: str


Step: TypeAlias = (
    Join | Leave | Say | Frame | Post | Operator | Reload | Hurry | Time | Mint | Identify | Renew | SignOut
)


class Author:
    """Draws stories. Ids go on from one chapter to the next."""

    def __init__(
        self,
        seed: int,
        ruled: Callable[..., dict[str, Json]],
        queries: Sequence[str],
        *,
        repeats: float = 0.02,
    ) -> None:
        # How often an id is one that came before.
        self._repeats = repeats
        self._chance = random.Random(seed)
        self.ruled = ruled
        self._queries = queries
        self._number = 0
        self._tokens = 0
        # What later steps speak of: ids of requests, proposals, grants.
        self._open: list[str] = ["nothing"]

    def chapter(self, steps: int) -> list[Step]:
        """Whatever happened before, all are let in again at its beginning."""
        story: list[Step] = [Reload(self.ruled())]
        for name in NAMES:
            story += [Operator(name, "restore", "chat"), Join(name)]
        while len(story) < steps:
            story += self._scene()
        return story

    def _scene(self) -> list[Step]:
        chance, session = self._chance, self._chance.randrange(8)
        match chance.choices(range(10), (24, 8, 6, 4, 2, 2, 1, 2, 1, 4))[0]:
            case 0:
                # A run of ordinary ones by one member: the first opens the fast path.
                kind, rests = chance.choice(PLAIN_KINDS), chance.random() < 0.3
                return [Say(session, self._ordinary(kind), rest=rests) for _ in range(chance.randrange(2, 8))]
            case 1:
                odd = [Say(session, self._odd(), binary=chance.random() < 0.1) for _ in range(3)]
                return [Say(session, self._ordinary("chat")), Say(session, self._ordinary("chat")), *odd]
            case 2:
                act = self._act(session)
                return [act, *(Say(n, self._ordinary("chat")) for n in range(4)), Time()]
            case 3:
                name, token = chance.choice(NAMES), chance.choice(("", "", "t-bob-less"))
                return [
                    Join(name, chance.choice(self._queries), token)
                    if chance.random() < 0.5
                    else Leave(session)
                ]
            case 4:
                # For a while somebody listens who reads another spelling.
                answer = [Say(session, self._ordinary("chat")) for _ in range(4)]
                return [Join("alice", "&dialect=mcpx"), *answer[:2], Leave(-1), *answer[2:]]
            case 5:
                opening = Say(0, self._line("stream/request", {"direction": "upload"}), rest=True)
                return [opening, *(Frame(chance.randrange(8), n, chance.random() < 0.5) for n in range(3))]
            case 6:
                return [Reload(self.ruled(**chance.choice(RULES)))]
            case 7:
                name, what = chance.choice(NAMES), chance.choice(("add", "remove", "restore", "post"))
                right = chance.choice(RIGHTS)
                return [Post(name, self._odd()) if what == "post" else Operator(name, what, right)]
            case 8:
                return self._token_scene()
            case _:
                hurried = tuple(Say(session, self._ordinary("chat")) for _ in range(5))
                return [Hurry(self.ruled(limits=chance.choice(PACES)), hurried), Reload(self.ruled())]

    def _token_scene(self) -> list[Step]:
        """Somebody comes in with a token that ends by itself, and speaks."""
        chance = self._chance
        known = f"short-{chance.randrange(max(1, self._tokens))}"
        self._tokens += 1
        token, name = f"short-{self._tokens}", chance.choice((*NAMES, *SIGNED_IN))
        rights = None if name in NAMES else tuple(chance.sample(RIGHTS, 2))
        answer = [Say(-1, self._ordinary("chat")) for _ in range(3)]
        coming: Step = Mint(token, name, chance.choice(("", "chat", "reasoning/*")))
        if chance.random() < 0.6:
            coming = Identify(token, name, rights)
        then: Step = chance.choice(
            (Renew(token), Renew(known), SignOut(name), Leave(-1), Join(name, "", known))
        )
        return [coming, Join(name, chance.choice(self._queries), token), *answer[:2], then, *answer[2:]]

    # What is said

    def _id(self) -> str:
        self._number += 1
        return f"e-{self._number}"

    def _line(self, kind: str, payload: Json = None, **more: Json) -> Callable[[str], bytes]:
        id = self._id()
        if self._chance.random() < self._repeats:
            id = f"e-{self._chance.randrange(max(1, self._number - 60), self._number + 1)}"
        return lambda name: encode(members(name, id, kind, payload, **more))

    def _ordinary(self, kind: str) -> Callable[[str], bytes]:
        chance = self._chance
        more: dict[str, Json] = {}
        if chance.random() < 0.2:
            more["to"] = chance.sample(NAMES, chance.randrange(3))
        if chance.random() < 0.2:
            more["correlation_id"] = [chance.choice(self._open)]
        if chance.random() < 0.1:
            more["ts"] = chance.choice(
                (SECOND + "Z", SECOND + "+00:00", SECOND[:-1] + "1.5Z", SECOND + ".1Z")
            )
        return self._line(kind, **more)

    def _odd(self) -> Callable[[str], bytes]:
        """Something that the fast path may leave to the slow path, and must if that would not relay it."""
        id, taken, odd = self._id(), self._chance.choice(self._open), self._chance.choice(ODD)
        return lambda name: odd(name, id, taken)

    def _act(self, session: int) -> Say:
        """What members do besides talking."""
        chance = self._chance
        who, other = chance.choice(NAMES), chance.choice(NAMES)
        about = [chance.choice(self._open)]
        right: Json = [{"kind": chance.choice(RIGHTS)}]
        kind, payload, more = chance.choice(
            (
                ("mcp/request", CALL, {"to": [who]}),
                ("mcp/proposal", CALL, {}),
                ("mcp/request", CALL, {"correlation_id": about}),
                ("mcp/response", {"result": {}}, {"correlation_id": about}),
                ("mcp/withdraw", {}, {"correlation_id": about}),
                ("mcp/reject", {}, {"correlation_id": about}),
                ("capability/grant", {"recipient": who, "capabilities": right}, {}),
                ("capability/grant", {"recipient": who, "capabilities": right, "max_uses": 2}, {}),
                ("capability/grant", {"recipient": who, "capabilities": right} | SOON, {}),
                ("capability/revoke", {"recipient": who, "capabilities": right}, {}),
                ("capability/revoke", {"recipient": who, "grant_id": about[0]}, {}),
                ("capability/grant-ack", {"status": "accepted"}, {"correlation_id": about}),
                ("space/invite", {"participant_id": f"guest-{chance.randrange(3)}"}, {}),
                ("space/kick", {"participant_id": who}, {}),
                ("participant/pause", {}, {"to": [who]}),
                ("participant/pause", {"timeout_seconds": 0.2}, {"to": [who]}),
                ("participant/resume", {}, {"to": [who, other]}),
                ("participant/request-status", {}, {"to": [who]}),
                ("participant/status", {}, {"correlation_id": about}),
                ("participant/shutdown", {}, {"to": [who]}),
                ("reasoning/cancel", {}, {}),
                ("moot/approve", {}, {"correlation_id": about}),
            )
        )
        self._open.append(f"e-{self._number + 1}")
        # What ends by itself is followed up within the tick: later might be too late, on a slow disk.
        ends = (
            kind == "participant/shutdown" or "timeout_seconds" in payload or SOON.items() <= payload.items()
        )
        rests = not ends and chance.random() < 0.5
        return Say(session, self._line(kind, payload, **more), rest=rests)


async def _played(step: Step, home: SocketlessGateway) -> str:
    host = home.host
    match step:
        case Join():
            came = home.try_join(*step[:2], token=home.tokens.get(step.token, step.token))
            await home.rest()
            return "" if isinstance(came, SocketlessSession) else f"{step} {came}"
        case Leave():
            if (session := _session(home, step.session)) is not None:
                session.leave()
                await home.rest()
        case Say():
            if (session := _session(home, step.session)) is not None:
                session.say(step.line(session.name), step.binary)
                if step.rest:
                    await home.rest()
        case Frame():
            if (session := _session(home, step.session)) is not None:
                streams = [*host.space.state.streams.open, "nobody"]
                session.say(b"#%b#data" % streams[step.stream % len(streams)].encode(), step.binary)
        case Post():
            try:
                answer = await host.post(step.name, "mew", step.line(step.name), Options(injected=True))
            except Refused as refusal:
                return f"{step.name} {refusal.code}"
            if isinstance(answer, Reply):
                return str(DIALECTS["mew"].encode_notice(answer.notice))
            return json.dumps([dict(each.fields) for each in answer.results])
        case Operator():
            rights = read_capabilities([{"kind": step.right}])
            try:
                if step.act == "restore":
                    done = await host.rights.restore_member(step.name, "root")
                else:
                    add, remove = (rights, ()) if step.act == "add" else ((), rights)
                    done = await host.rights.change_capabilities(step.name, add, remove, "root")
            except Refused as refusal:
                return f"{step} {refusal.code}"
            if step.act == "restore":
                home.tokens[step.name] = str(done.results[0].fields["token"])
            return json.dumps([step, *(dict(each.fields) for each in done.results)], separators=(",", ":"))
        case Reload():
            home.reload(step.settings)
            await home.rest()
        case Hurry():
            home.reload(step.settings)
            await home.rest()
            _forget_debts(home)
            for reply in step.steps:
                await _played(reply, home)
            await home.rest()
            _forget_debts(home)
        case Time():
            state = host.space.state
            await until(
                lambda: not any(m.pause is not None and m.pause.until is not None for m in state.roster)
            )
            await until(lambda: not any(s.closing_at is not None for s in state.roster.sessions.values()))
            await until(lambda: not any(g.expires is not None for g in state.grants.by_id.values()))
            await home.rest()
        case Mint() | Identify() | Renew() | SignOut():
            try:
                await _use_token(step, home)
            except Refused as refusal:
                return f"{step} {refusal.code}"
            await home.rest()
    return ""


async def _use_token(step: Mint | Identify | Renew | SignOut, home: SocketlessGateway) -> None:
    host = home.host
    now, tokens = host.journaled.clock(), host.space.state.temporary_tokens
    match step:
        case Mint():
            only = read_capabilities([{"kind": step.only}]) if step.only else None
            made = await mint_token(host, step.name, "root", seconds=900, only=only, max_seconds=900)
            home.tokens[step.token] = str(made["token"])
        case Identify():
            rights = None
            if step.rights is not None:
                rights = capability_pairs(read_capabilities([{"kind": kind} for kind in step.rights]))
            token = TemporaryToken(
                hash=hash_token(step.token),
                member=Name(step.name),
                expires_at=now + 900,
                source="sign_in",
                keys=(f"sub-{step.name}", f"sid-{step.token}"),
                issued_at=now,
            )
            host.rights.sign_in(SignIn(token=token, capabilities=rights))
        case Renew():
            sessions = host.space.state.roster.sessions.values()
            admitted = [each.id for each in sessions if tokens.get(each.options.token or "") is not None]
            if admitted:
                host.rights.renew(admitted[-1], hash_token(home.tokens.get(step.token, step.token)), _ignore)
        case SignOut():
            await host.rights.sign_out([f"sub-{step.name}"], "root", issued_before=now, keep_seconds=900)


def _ignore(refusal: Refused) -> None:
    """Both ways refuse alike: what they answer is compared."""


def _forget_debts(home: SocketlessGateway) -> None:
    for member in home.host.space.state.roster:
        member.send_limiter.messages_drained = member.send_limiter.bytes_drained = 0.0


def _session(home: SocketlessGateway, number: int) -> SocketlessSession | None:
    here = [session for session in home.sessions if session.here]
    return here[number % len(here)] if here else None


async def lived(folder: Path, author: Author) -> tuple[int, int]:
    """A story, a restart from disk, and another chapter; how many steps, and what took the fast path."""
    ruled = author.ruled()
    received = received_messages = 0
    async with (
        socketless_gateway(folder / "fast", ruled) as fast,
        socketless_gateway(folder / "slow", ruled, with_fast_path=False) as slow,
    ):
        for steps in (120, 120, 0, 60):
            if not steps:
                for home in (fast, slow):
                    await home.close()
                    await home.open()
                await check_same(fast, slow, "started again")
                continue
            story = author.chapter(steps)
            before = fast.host.fast_paths.accepted
            for home in (fast, slow):
                for step in story:
                    home.notes.append(await _played(step, home))
            received += len(story)
            received_messages += fast.host.fast_paths.accepted - before
            await check_same(fast, slow, f"after {received} steps")
            fast.check_replay()
            slow.check_replay()
        assert slow.host.fast_paths.accepted == 0
    return received, received_messages


QUERIES: Final = ("", "", "&echo=0", "&echo=unanswered")


@pytest.mark.parametrize("seed", range(2))
async def test_a_gateway_with_fast_path_does_what_one_without_does(tmp_path: Path, seed: int) -> None:
    steps, received = await lived(tmp_path, Author(seed, settings, QUERIES))
    assert received > steps / 20


@pytest.mark.parametrize("size", [0, 3, 10_000])
async def test_so_it_does_where_ids_may_come_again(tmp_path: Path, size: int) -> None:
    rules: Json = {"reference_compat": True}
    ruled = partial(settings, rules=rules, limits={"max_recent_ids": size})
    steps, received = await lived(tmp_path, Author(200 + size, ruled, QUERIES, repeats=0.3))
    assert received > steps / 50


async def test_so_it_does_where_no_journal_is_kept(tmp_path: Path) -> None:
    steps, received = await lived(tmp_path, Author(11, partial(settings, journal="off"), QUERIES))
    assert received > steps / 20


async def test_so_it_does_where_little_of_the_past_is_kept(tmp_path: Path) -> None:
    """A tick brings more than the past holds, by count and by bytes."""
    small = partial(settings, poll_messages=5, poll_bytes=1_500)
    steps, received = await lived(tmp_path, Author(100, small, QUERIES))
    assert received > steps / 20


async def test_where_everything_waits_for_the_disk_nothing_takes_the_short_way(tmp_path: Path) -> None:
    _, received = await lived(tmp_path, Author(13, partial(settings, journal="strict"), QUERIES))
    assert received == 0
