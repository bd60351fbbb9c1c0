"""Of a chat only the bytes are kept until a call looks at it (decision 0186): the same is found by them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from moot.participant import connect
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.trust.approver import kept_messages, origin_watch
from moot.trust.approver.approver import Approver
from moot.trust.approver.kept_messages import KeptMessage
from moot.trust.approver.origin_watch import OriginWatch
from moot.trust.history.proposal_case import Case, case_of
from tests.participant.gateway_with_members import QUICK
from tests.trust.approver.mail_space import STRANGER, mail_space
from tests.waiting import until

NOON = 1_715_774_400.0
VALUES = ["bob@example.org", "dora@example.org", STRANGER, "carol@example.org", "Ana Torres"]
WORDS = ["please", "write to", "do not write to", "who is", "the report of", "> ", "never", "Zoë says", "\n"]


def kept_chats(watch: OriginWatch) -> list[KeptMessage | bytes]:
    return [kept for kept in watch.kept.messages if isinstance(kept, bytes) or kept[0].kind == "chat"]


async def test_a_chat_is_kept_as_its_bytes_until_a_call_looks_at_it(tmp_path: Path) -> None:
    async with mail_space(tmp_path) as space:
        origins = space.approver.origins
        await space.say("Write to bob@example.org please")
        for text in ("This is said before", "Write to dora@example.org please", "This is said later"):
            await space.alice.chat(text, to="agent")
        await space.agent.chat("I will")
        await space.settle()
        # By the first one the history of the gateway was known to be over.
        assert [type(kept) for kept in kept_chats(origins)] == [tuple, bytes, bytes, bytes, bytes]
        assert (await space.propose("dora@example.org")).by == "approver"
        # From the latest on, up to the one that has the value; the others are as they were.
        assert [type(kept) for kept in kept_chats(origins)] == [tuple, bytes, tuple, tuple, tuple]
        assert origins.kept.read_count == 0
        await space.asked(STRANGER)
        read = [envelope for envelope in space.messages_read() if envelope.kind == "chat"]
        assert [envelope.payload["text"] for envelope in read] == [
            "Write to bob@example.org please",
            "This is said before",
            "Write to dora@example.org please",
            "This is said later",
            "I will",
        ]


async def test_a_chat_whose_bytes_have_another_name_is_kept_with_that_of_the_person(tmp_path: Path) -> None:
    """D-19: a runtime id may differ from the name, and who had it may be gone when it is looked at."""
    async with mail_space(tmp_path) as space:
        origins = space.approver.origins
        made = await space.alice.admin.invite("ben", ["*"])
        async with connect(
            space.party.url, "lab", str(made.token), limits=QUICK, participant="ben-laptop"
        ) as laptop:
            await until(lambda: "ben" in space.approver.store.people)
            await laptop.chat("Write to dora@example.org please", to="agent")
            await space.settle()
        (kept,) = kept_chats(origins)
        assert isinstance(kept, tuple)
        assert (kept[0].sender, list(kept[0].to)) == ("ben", ["agent"])
        await until(lambda: space.approver.space.roster.ids_are_names)
        assert (await space.propose("dora@example.org")).by == "approver"


def call_of(tool: str, arguments: Json) -> dict[str, Json]:
    return {"method": "tools/call", "params": {"name": tool, "arguments": arguments}}


class Twins:
    """Two that are told the same: of chats one keeps the bytes, and the other envelopes."""

    def __init__(self, approver: Approver, seed: int) -> None:
        self.watches = OriginWatch(approver), OriginWatch(approver)
        self.draws = random.Random(seed)
        self.count = 0
        self.open: list[Case] = []
        self.compared: list[bool] = []
        self.store, self.people = approver.store, approver.store.people

    def become(self, people: set[str]) -> None:
        for watch in self.watches:
            watch.note_people()
        self.store.people = self.people = frozenset(people)

    def send(self, kind: str, sender: str, payload: Json, to: list[str], about: list[str]) -> Envelope:
        self.count += 1
        members: dict[str, Json] = {
            "protocol": "mew/v0.4",
            "id": f"e{self.count}",
            "ts": "2024-05-15T12:00:00Z",
            "from": sender,
            "kind": kind,
            "payload": payload,
        }
        members |= {"to": to} if to else {}
        members |= {"correlation_id": about} if about else {}
        raw = json.dumps(members, ensure_ascii=self.draws.random() < 0.5).encode()
        envelope = DIALECTS["mew"].decode(raw)
        again = {
            watch.observe(envelope, NOON + self.count, is_as_sent=watch is self.watches[0])
            for watch in self.watches
        }
        if again == {True}:
            for case in self.open:
                self.compare(case, again=True)
        assert len(again) == 1
        return envelope

    def compare(self, case: Case, *, again: bool) -> None:
        found = []
        for watch in self.watches:
            (watch.look_again if again else watch.look)(case)
            early = watch.ask_reason(case)
            while watch._due or watch._due_last:
                watch._read_slice()
            found.append((early, watch.ask_reason(case), watch.steered_reason(case), watch.finding(case.id)))
        assert found[0] == found[1]
        self.compared.append(self.watches[0].asked(case.id))

    def step(self) -> None:
        draws = self.draws
        words = [draws.choice(WORDS) for _ in range(draws.randrange(4))]
        text = " ".join(draws.sample([*words, draws.choice(VALUES)], len(words) + 1))
        text += " and so on" * draws.choice((0, 0, 0, 20, 400))
        to = draws.choice(([], ["agent"], ["mail"]))
        about = [draws.choice(self.open).id] if self.open else []
        match draws.choice(("person",) * 6 + ("agent", "mail", "mail", "call", "call", "call", "rare")):
            case "person":
                self.send("chat", "alice", {"text": text}, to, [])
            case "agent":
                self.send("chat", "agent", {"text": text, "format": "plain"}, [], about)
            case "mail":
                call = call_of(draws.choice(("read_mail", "send")), {})
                asked = self.send("mcp/request", "agent", call, ["mail"], [])
                result = {"result": {"content": [{"type": "text", "text": text}]}}
                self.send("mcp/response", "mail", result, ["agent"], [asked.id])
            case "call":
                payload = call_of("send", {"to": draws.choice(VALUES)})
                made = self.send("mcp/proposal", "agent", payload, ["mail"], [])
                case = case_of(made.id, "agent", ("mail",), payload, at=NOON + self.count, raw=made.raw)
                self.open = [*self.open[-3:], case]
                self.compare(case, again=False)
            case _ if draws.random() < 0.3:
                # Whether the agent is a person, too, changes.
                self.become({"alice"} if "agent" in self.people else {"alice", "agent"})
            case _ if draws.random() < 0.5:
                self.send("mcp/reject", "alice", {"reason": "unsafe"}, [], about)
            case _ if draws.random() < 0.5:
                asked = self.send("participant/clear", "alice", {}, ["agent"], [])
                self.send("participant/status", "agent", {"messages_in_context": 0}, [], [asked.id])
            case _:
                self.send("moot/endorse", "alice", {"value": draws.choice(VALUES)}, [], [])


@pytest.mark.parametrize("kept", [(4_096, 8 << 20), (40, 8 << 20), (4_096, 12_000)])
async def test_by_the_bytes_of_chats_the_same_is_found_as_by_envelopes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: tuple[int, int]
) -> None:
    for module in (kept_messages, origin_watch):
        monkeypatch.setattr(module, "MAX_KEPT_MESSAGES", kept[0])
    monkeypatch.setattr(kept_messages, "MAX_KEPT_BYTES", kept[1])
    compared: list[bool] = []
    async with mail_space(tmp_path) as space:
        for seed in range(3):
            twins = Twins(space.approver, seed)
            for _ in range(120):
                twins.step()
            left, right = twins.watches
            assert left.known_ids() == right.known_ids()
            assert (left.kept._bytes, left.kept.read_count) == (right.kept._bytes, right.kept.read_count)
            compared += twins.compared
    # Some of them ask, and some do not.
    assert min(compared.count(True), compared.count(False)) > 15
