"""Three NATS servers and three gateways under load: what members said and heard, and the check of it."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import httpx
import websockets

from moot.protocol.operation import Json
from tests.gateway.cluster import planted_faults
from tests.gateway.cluster.histories import executions_of, faults_of
from tests.gateway.cluster.machines import Machines
from tests.gateway.cluster.nats_servers import NatsServers
from tests.gateway.cluster.roaming_members import RoamingMembers
from tests.gateway.cluster.task_dump import describe_tasks
from tests.gateway.fault_shim import FaultShim
from tests.gateway.running_gateway import (
    CALL,
    Closed,
    gateway_settings,
    participants,
    space_settings,
    write_config,
)
from tests.gateway.served import Finished, Served, started
from tests.ports import held_port

NAMES = ("a", "b", "c")
SHARD = 4
_ROOT = Path(__file__).parents[3]
# Members that are there to be revoked, one after another.
REVOCABLE = 64
LIMITS: dict[str, Json] = {"messages_per_second": 0, "bytes_per_second": 0, "max_recent_ids": 200_000}
# Small, so that some inputs are in the log in parts.
_MAX_PAYLOAD = 32 << 10
_LARGE = 80_000
# Few, so that gateways also begin at snapshots and the log is trimmed meanwhile.
_SNAPSHOT_INPUTS = 2_500
# Frames of somebody who was revoked may be heard for so long.
FRAME_SECONDS = 1.0
_RETRY_SECONDS = 0.05
# Of every gateway, where each has a machine of its own.
_PORT = 8080
_MAX_STARTS = 20
_ANSWER_SECONDS = 25
# Asked again: nothing of it says that the space has decided.
_AGAIN = ("unavailable", "outcome_unknown", "the gateway is starting", "None")


class HeardFrame(NamedTuple):
    """Who sent it, when, and at which gateway it came out."""

    sender: str
    sent_at: float
    gateway: str


class ClusterRounds:
    """All that was acknowledged and heard so far. Without `machines` all run on loopback."""

    # Of the space.
    rules: ClassVar[Json] = {}
    spaces: ClassVar[tuple[str, ...]] = ("lab",)
    # Gateways with an address that members know; the first three are always there.
    names: ClassVar[tuple[str, ...]] = NAMES
    # Of the space `lab`, which gateways leave.
    shard: ClassVar[int] = SHARD

    def __init__(self, folder: Path, seed: int, machines: Machines | None, planted: str = "") -> None:
        self.folder = folder
        self._planted = planted
        self.random = random.Random(seed)
        self.machines = machines
        (folder / "nats").mkdir(exist_ok=True)
        self.nats: NatsServers
        # The times at which the clocks of NATS were set, and by how much.
        self.shifts = folder / "shifts"
        self.shifts.touch()
        self.gateways: dict[str, Served] = {}
        self.shims: dict[str, FaultShim] = {}
        self.acknowledged: list[str] = []
        # In which space each was said that has an id.
        self.space_of: dict[str, str] = {}
        # Of a space and a connection.
        self.received: dict[tuple[str, str], list[str]] = {}
        # Of a space and the polls that follow each other without a gap that a gateway told of.
        self.polled: dict[tuple[str, int], list[str]] = {}
        self.frames: list[HeardFrame] = []
        self.revoked_at: dict[str, float] = {}
        self.executed: Counter[str] = Counter()
        # The longest wait for an answer, by what went wrong meanwhile.
        self.longest: defaultdict[str, float] = defaultdict(float)
        self.fault = ""
        self.faults_so_far: list[str] = []
        self.ended_themselves = self.failed_starts = 0
        # How often a shard was left or served again.
        self.moves: Counter[str] = Counter()
        self._held = ExitStack()
        self.urls = {name: self._address(name) for name in self.names}
        self.roaming = RoamingMembers(list(self.urls.values()))
        self._ids = itertools.count(1)
        self._started: list[Served] = []

    # Gateways

    def _address(self, name: str) -> str:
        """Where a gateway listens, after each start."""
        if self.machines is not None:
            port = _PORT + self.names.index(name) // len(NAMES)
            return f"http://{self.machines.outer[_place(name)]}:{port}"
        return f"http://127.0.0.1:{self._held.enter_context(held_port())}"

    def _file(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        cluster: Json = {
            "servers": self.nats.addresses,
            "gateway": name,
            "snapshot_inputs": _SNAPSHOT_INPUTS,
        } | self.cluster_settings(name)
        people = participants(alice=["*"], bob=["*"], carol=["*"], tom=["*"])
        people |= participants(**{f"dave-{each}": ["chat"] for each in NAMES})
        people |= participants(**{f"eve{number}": ["*"] for number in range(REVOCABLE)})
        host = "127.0.0.1" if self.machines is None else self.machines.outer[_place(name)]
        settings = gateway_settings(
            {each: space_settings(people, limits=LIMITS, **dict(self.rules)) for each in self.spaces},
            cluster=cluster,
            host=host,
            max_connections_per_address=0,
        )
        return write_config(folder, settings)

    def cluster_settings(self, _name: str) -> dict[str, Json]:
        return {"shards": SHARD + 1}

    async def start(self, name: str) -> None:
        file = self._file(name)
        if name not in self.shims:
            self.shims[name] = FaultShim(self.folder / name)
        environ = {"PYTHONPATH": f"{_ROOT}:{_ROOT}/src", "MOOT_TEST_SHIFTS": str(self.shifts)}
        environ[planted_faults.VARIABLE] = self._planted
        for tries in itertools.count(1):
            try:
                gateway = await started(
                    file,
                    "--port",
                    self.urls.get(name, ":0").rpartition(":")[2],
                    environ=environ | self.shims[name].environ,
                    before=() if self.machines is None else self.machines.command(_place(name)),
                    module="tests.gateway.cluster.shifted_log",
                )
                break
            except Finished as ended:
                # NATS may be away just then: a supervisor starts it again.
                self.failed_starts += 1
                print(f"{self.fault}: {ended.stderr.splitlines()[-1]}", flush=True)
                if tries == _MAX_STARTS:
                    raise AssertionError(f"{self.faults_so_far}: {ended}") from None
                await asyncio.sleep(1)
        gateway.http.timeout = httpx.Timeout(_ANSWER_SECONDS)
        self.gateways[name] = gateway
        self._started.append(gateway)

    async def start_ended(self) -> None:
        """What a supervisor does: whoever could not go on begins anew, and has said why."""
        for name, gateway in list(self.gateways.items()):
            if gateway.process.returncode is not None:
                assert "differs from that of gateway" not in gateway.stderr(), gateway.stderr()
                print(f"{self.fault}: {gateway.stderr().splitlines()[-1]}", flush=True)
                self.ended_themselves += 1
                await self.start(name)

    def dump_tasks(self) -> None:
        """Write down what everybody waits for: our tasks here, those of gateways on their stderr."""
        (self.folder / "tasks").write_text(describe_tasks(), "utf-8")
        for gateway in self.gateways.values():
            if gateway.process.returncode is None:
                gateway.process.send_signal(signal.SIGUSR1)

    async def statuses(self) -> dict[str, object]:
        """What each gateway says of the cluster, where a round hangs."""
        told: dict[str, object] = {}
        for name, gateway in self.gateways.items():
            try:
                told[name] = (await gateway.admin("GET", "cluster")).json()
            except (httpx.HTTPError, ValueError) as fault:
                told[name] = f"{fault!r}, exit {gateway.process.returncode}"
        return told

    async def move_shard(self) -> None:
        """A gateway leaves the shard of the space, or serves it again."""
        name, method = self.random.choice(NAMES), self.random.choice(("DELETE", "POST"))
        self.roaming.note_move(self.urls[name])
        try:
            answer = await self.gateways[name].admin(method, f"cluster/shards/{self.shard}")
        except httpx.HTTPError:
            # It was killed, or does not run.
            self.moves["not answered"] += 1
            return
        finally:
            self.roaming.note_move(self.urls[name])
        # Refused where no other serves it, or the log does not answer.
        assert answer.status_code in (200, 400, 503), answer.text
        if answer.status_code == 200 and answer.json()["changed"]:
            self.moves["left" if method == "DELETE" else "served again"] += 1

    # Members

    async def post(self, who: str, envelope: dict[str, Json], start: int, space: str = "lab") -> str:
        """Say something, on the next gateway when one does not answer: the code of a refusal, or nothing."""
        began = time.monotonic()
        for number in itertools.count(start):
            gateway = self.gateways[NAMES[number % len(NAMES)]]
            try:
                answer = await gateway.post(who, envelope, space=space)
                assert answer.headers["content-type"] == "application/json", (answer.status_code, answer.text)
                code = "" if answer.status_code == 200 else str(answer.json().get("error"))
                if answer.status_code == 503 and code == "denied":
                    # It is starting, or cut off.
                    code = "unavailable"
            except (httpx.HTTPError, AttributeError):
                # The second one: its library looks at a socket that was reset in the moment it was opened.
                code = "unavailable"
            if code not in _AGAIN:
                self.longest[self.fault] = max(self.longest[self.fault], time.monotonic() - began)
                return code
            await asyncio.sleep(_RETRY_SECONDS)
        raise AssertionError("without end")

    async def talk(self, who: str, start: int, count: int, padding: str = "") -> None:
        for _ in range(count):
            id = f"chat-{next(self._ids)}"
            text = f"{id}{padding or 'x' * self.random.choice((0, 0, 0, 0, 0, 0, 0, _LARGE))}"
            space = self.space_of[id] = self.random.choice(self.spaces)
            code = await self.post(who, {"id": id, "kind": "chat", "payload": {"text": text}}, start, space)
            # It may have been taken by a gateway that could not say so any more.
            assert code in ("", "duplicate_id"), code
            self.acknowledged.append(id)

    async def decide(self) -> None:
        """Two people carry one proposal out on two gateways at once."""
        id = f"proposal-{next(self._ids)}"
        said: dict[str, Json] = {"id": id, "kind": "mcp/proposal", "payload": CALL, "to": ["tom"]}
        assert await self.post("alice", said, 0) in ("", "duplicate_id")

        async def carry_out(who: str, start: int) -> str:
            request: dict[str, Json] = {"id": f"{id}-{who}", "kind": "mcp/request", "payload": CALL}
            return await self.post(who, request | {"to": ["tom"], "correlation_id": [id]}, start)

        codes = await asyncio.gather(carry_out("bob", 1), carry_out("carol", 2))
        assert set(codes) <= {"", "duplicate_id", "proposal_settled", "target_absent"}, codes

    async def listen(self, name: str, space: str) -> None:
        """Hear everything on one gateway, and come back when it is there again."""
        for number in itertools.count():
            seen = self.received.setdefault((space, f"tom at {name}, connection {number}"), [])
            with suppress(OSError, Closed, websockets.WebSocketException):
                client = await self.gateways[name].open(f"/ws?space={space}", token="t-tom")
                while True:
                    self._note(name, seen, await client.next())
            await asyncio.sleep(_RETRY_SECONDS)

    async def poll(self, space: str) -> None:
        """Read everything by polls, each of another gateway; behind a gap that is told, begin anew."""
        params, gaps = {"space": space}, 0
        seen = self.polled[space, gaps] = []
        for number in itertools.count():
            gateway = self.gateways[NAMES[number % len(NAMES)]]
            # The second one: as in `post`.
            with suppress(httpx.HTTPError, AttributeError):
                answer = await gateway.http.get(
                    "/participants/carol/messages",
                    params=params,
                    headers={"Authorization": "Bearer t-carol"},
                )
                told = answer.json() if answer.status_code in (200, 410) else {}
                if answer.status_code == 410:
                    gaps += 1
                    seen = self.polled[space, gaps] = []
                seen += [each["id"] for each in told.get("messages", ()) if each["kind"] == "chat"]
                params |= {"since": told["next"]} if told else {}
            await asyncio.sleep(_RETRY_SECONDS)

    def _note(self, name: str, seen: list[str], message: Any) -> None:
        if isinstance(message, str | bytes):
            sender, sent_at = str(message).rpartition("#")[2].split()
            self.frames.append(HeardFrame(sender, float(sent_at), name))
        elif message["kind"] == "chat":
            seen.append(message["id"])
        elif message["kind"] == "mcp/request" and name == "a":
            self.executed[message["correlation_id"][0]] += 1

    # From the first start to the check

    async def run(self, each_round: Callable[[int], Any], rounds: int) -> None:
        """Start everything, run the rounds, and check. Raises AssertionError with what is wrong."""
        with ExitStack() as stack:
            stack.callback(self._close_nats)
            self.nats = NatsServers(
                self.folder / "nats",
                3,
                f"max_payload: {_MAX_PAYLOAD}",
                jetstream="sync_interval: always",
                machines=self.machines,
            )
            await asyncio.gather(*(self.start(name) for name in NAMES))
            listening = [
                asyncio.create_task(self.listen(name, space)) for name in NAMES for space in self.spaces
            ]
            listening += [
                asyncio.create_task(self.roaming.run(f"dave-{name}", number))
                for number, name in enumerate(NAMES)
            ]
            listening += [asyncio.create_task(self.poll(space)) for space in self.spaces]
            try:
                for number in range(rounds):
                    await each_round(number)
                    await self.start_ended()
                await self.start("z")
                for gateway in self.gateways.values():
                    await gateway.end()
            finally:
                for task in listening:
                    task.cancel()
                await asyncio.gather(*listening, return_exceptions=True)
                for gateway in self._started:
                    with suppress(OSError, Closed, websockets.WebSocketException):
                        await gateway.close()
                    await gateway.end(signal.SIGKILL)
        faults = self.faults()
        assert not faults, faults[:20]

    def _close_nats(self) -> None:
        self._held.close()
        if hasattr(self, "nats"):
            self.nats.close()

    # The check

    def faults(self) -> list[str]:
        """What cannot have been, from what members and journals recorded."""
        faults, merged = list[str](), list[dict[str, Any]]()
        for space in reversed(self.spaces):
            journals = {name: self._journal(name, space) for name in (*self.names, "z")}
            # Each may lack what happened while its gateway was away; the log's time puts them together.
            merged = sorted(itertools.chain(*journals.values()), key=lambda each: each["t"])
            order = list({each["id"]: each for each in merged if each["kind"] == "chat"})
            histories = {"log": order}
            histories |= {who: seen for (where, who), seen in self.received.items() if where == space}
            for name, records in journals.items():
                histories[f"journal of {name}"] = [each["id"] for each in records if each["kind"] == "chat"]
            for (where, part), polled in self.polled.items():
                if where == space and polled:
                    histories[f"polls behind gap {part}"] = polled
                    faults += [f"{each} in {space} was not polled" for each in _left_out(polled, order)]
            said = [each for each in self.acknowledged if self.space_of[each] == space]
            faults += [f"{each} in {space}" for each in faults_of(histories, said, whole="log")]
        # The rest is about `lab`, the first of them.
        faults += [f"{id} carried out {count} times" for id, count in self.executed.items() if count > 1]
        carried = executions_of(each["raw"] | {"id": each["id"]} for each in merged if _is_call(each))
        faults += [f"{id} carried out by {count} requests" for id, count in carried.items() if count > 1]
        self.carried_out = len(carried)
        faults += [f"{name} was interrupted by another gateway's kill" for name in self.roaming.interrupted]
        removed = {
            each["raw"]["payload"]["participant_id"]: each["t"]
            for each in merged
            if each["kind"] == "space/kick"
        }
        faults += [
            f"{each['id']} of {each['who']} was ordered after the revocation"
            for each in merged
            if each["t"] > removed.get(each["who"], each["t"])
        ]
        faults += [
            f"{who} was revoked, and the log does not have it"
            for who in self.revoked_at
            if who not in removed
        ]
        faults += [
            f"a frame of {each.sender} came out at {each.gateway}, sent {late:.2f} s after the revocation"
            for each in self.frames
            if (late := each.sent_at - self.revoked_at.get(each.sender, each.sent_at)) > FRAME_SECONDS
        ]
        return faults

    def _journal(self, name: str, space: str) -> list[dict[str, Any]]:
        """What was accepted, as one gateway wrote it down."""
        folder = self.folder / name / "data" / "spaces" / space / "journal"
        lines = (
            line for file in sorted(folder.glob("*.jsonl")) for line in file.read_text("utf-8").splitlines()
        )
        records = (json.loads(line) for line in lines if '"accepted"' in line)
        return [each for each in records if each.get("out") == "accepted" and "raw" in each]


def _left_out(seen: Sequence[str], order: Sequence[str]) -> set[str]:
    """What lies in an order between the first and the last of these, and is none of them."""
    places = {each: place for place, each in enumerate(order)}
    known = [places[each] for each in seen if each in places]
    return set(order[min(known, default=0) : max(known, default=0)]) - set(seen)


def _is_call(record: dict[str, Any]) -> bool:
    return bool(record["kind"] == "mcp/request")


def _place(name: str) -> int:
    """The machine of a gateway."""
    return NAMES.index(name) if name in NAMES else 0
