"""One life of a proposal: gateway, SDK, rules and console say the same of every story (`stories.json`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pytest

from moot.participant.connection.envelope_sender import SendCounts
from moot.participant.connection.message_feed import HandlerRunner
from moot.participant.connection.roster import Roster
from moot.participant.decisions.proposal_list import ProposalList
from moot.participant.limits import ParticipantLimits
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import Envelope
from moot.protocol.gateway_proposal import GatewayProposal
from moot.protocol.operation import Json
from moot.protocol.proposal_life import ProposalLife
from moot.protocol.proposal_tracker import ProposalTracker
from moot.trust.history.proposal_history import ProposalHistory
from tests.console.in_node import in_node
from tests.proposals.told_stories import STORIES, Heard, ToldStory, tell

Found = dict[str, dict[str, Json]]
TOLD: list[ToldStory] = [tell(story) for story in STORIES]
# What is not told to whoever joins later.
_UNTOLD = ("inputs", "origins")


def _facts(life: ProposalLife) -> dict[str, Json]:
    given = life.approvals_needed - life.approvals_missing
    return {
        "state": life.state,
        "votes": f"{given} of {life.approvals_needed}" if life.approvals_needed else "",
        "reason": life.reason,
        "rejected_by": {each.by: each.reason for each in life.rejections},
        "fulfilled_by": life.fulfilled_by,
        "assessed_by": life.assessed_by,
        "inputs": len(life.inputs),
        "origins": life.origins.why if life.origins else None,
    }


def _read(raw: str) -> Envelope:
    return DIALECTS["mew"].decode(raw.encode())


def _entries(page: str) -> Iterable[tuple[GatewayProposal, Envelope | None]]:
    for entry in msgspec.json.decode(page)["payload"]["proposals"]:
        raw = msgspec.json.encode(entry["envelope"]) if "envelope" in entry else b""
        told = msgspec.convert({k: v for k, v in entry.items() if k != "envelope"}, GatewayProposal)
        yield told, DIALECTS["mew"].decode(raw) if raw else None


def _not_known(page: str) -> list[str]:
    found: list[str] = msgspec.json.decode(page)["payload"].get("not_known", [])
    return found


def follow_by_life(heard: Iterable[Heard]) -> Found:
    tracker = ProposalTracker[ProposalLife]()

    def add(envelope: Envelope, at: float) -> None:
        if envelope.id not in {life.id for life in tracker}:
            life = ProposalLife(id=envelope.id, proposer=envelope.sender, expires=at + 86_400)
            tracker.track(life)

    for each in heard:
        tracker.expire(each.at)
        if each.raw and (envelope := _read(each.raw)).kind == "mcp/proposal":
            add(envelope, each.at)
        elif each.raw:
            tracker.apply(_read(each.raw), each.at)
        for told, proposed in _entries(each.page) if each.page else ():
            if proposed is not None:
                add(proposed, each.at)
            tracker.restore_known(told, each.at)
        for id in _not_known(each.page) if each.page else ():
            tracker.forget(id, each.at)
    return {life.id: _facts(life) for life in tracker}


def follow_by_sdk(heard: Iterable[Heard], *, looks: bool = True) -> Found:
    runner = HandlerRunner(lambda _: None, SendCounts(), 100)
    proposals = ProposalList(ParticipantLimits(), Roster("mew", runner), runner)
    for each in heard:
        proposals.set_gateway_time(each.at)
        if looks:
            proposals.open()
        if each.raw and (envelope := _read(each.raw)).kind == "mcp/proposal":
            proposals.hear(envelope)
        elif each.raw:
            proposals.observe(_read(each.raw))
        for told, proposed in _entries(each.page) if each.page else ():
            proposals.restore(told, proposed)
        for id in _not_known(each.page) if each.page else ():
            proposals.mark_forgotten(id)
    return {seen.id: _facts(seen) for seen in proposals}


def follow_by_sdk_late(heard: Iterable[Heard]) -> Found:
    """Decision 0259: nobody looks before the end."""
    return follow_by_sdk(heard, looks=False)


def follow_by_rules(heard: Iterable[Heard]) -> Found:
    history = ProposalHistory()
    for each in heard:
        history.advance(each.at)
        if each.raw:
            history.observe(_read(each.raw), each.at)
    return {made.id: _facts(made) for made in history}


def _compare(found: Found, expected: Any, *, only_known: bool = False, untold: Sequence[str] = ()) -> None:
    for id, facts in expected.items():
        if only_known and id not in found:
            continue
        wanted = {key: value for key, value in facts.items() if key not in untold}
        assert {key: found[id][key] for key in wanted} == wanted, id


@pytest.mark.parametrize("story", TOLD, ids=lambda story: story.name)
def test_the_gateway_says_so(story: ToldStory) -> None:
    if "forgotten" in str(story.expected):
        return
    for id, entry in story.at_gateway.items():
        life = ProposalLife(id=id, proposer=entry["proposer"])
        entry.pop("envelope", None)
        life.restore(msgspec.convert(entry, GatewayProposal), 0.0)
        known = {k: v for k, v in story.expected[id].items() if k not in ("inputs", "reason", "origins")}
        assert {key: _facts(life)[key] for key in known} == known


@pytest.mark.parametrize("follow", [follow_by_life, follow_by_sdk, follow_by_sdk_late, follow_by_rules])
@pytest.mark.parametrize("story", TOLD, ids=lambda story: story.name)
def test_whoever_listens_says_so_and_hearing_it_twice_changes_nothing(
    story: ToldStory, follow: Callable[[Iterable[Heard]], Found]
) -> None:
    if follow is follow_by_rules and "forgotten" in str(story.expected):
        return
    untold = ("origins",) if follow is follow_by_rules else ()
    _compare(follow(story.live), story.expected, untold=untold)
    _compare(follow(story.twice), story.expected, untold=untold)
    _compare(follow(story.history), story.by_history, untold=untold)


@pytest.mark.parametrize("follow", [follow_by_life, follow_by_sdk])
@pytest.mark.parametrize("story", TOLD, ids=lambda story: story.name)
def test_whoever_joins_in_the_middle_and_asks_says_so(
    story: ToldStory, follow: Callable[[Iterable[Heard]], Found]
) -> None:
    for number in range(len(story.pages)):
        _compare(follow(story.late(number)), story.expected, only_known=True, untold=_UNTOLD)


@pytest.mark.parametrize("named", [None, 1, ["p1"], {"id": "p1"}, "p2"])
def test_a_refusal_that_names_no_proposal_of_ours_changes_nothing(named: Json) -> None:
    """It comes from a gateway, which may be anybody's."""
    tracker = ProposalTracker[ProposalLife]()
    life = tracker.track(ProposalLife(id="p1", proposer="agent"))
    payload = {"error": "proposal_settled", "state": "expired", "proposal_id": named}
    fields = {"protocol": "mew/v0.4", "id": "e1", "ts": "2026-01-05T10:00:00Z", "from": "system:gateway"}
    raw = msgspec.json.encode(fields | {"kind": "system/error", "payload": payload})
    assert tracker.apply(DIALECTS["mew"].decode(raw), 0.0) == []
    assert life.state == "pending"


def test_the_console_says_so_however_it_learned_of_it() -> None:
    streams: list[tuple[ToldStory, str, list[Heard], Any]] = []
    for story in TOLD:
        streams += [
            (story, "live", story.live, story.expected),
            (story, "twice", story.twice, story.expected),
            (story, "history", [story.steps[0][0], *story.history], story.by_history),
            *((story, f"late {n}", story.late(n), story.expected) for n in range(len(story.pages))),
        ]
    found = in_node(
        """async (bring, streams) => {
        const { Proposals } = await bring("core/state/state-proposals.js");
        const rowOf = ({ id, from, to, correlation_id }, raw, at) =>
            ({ id, from, to: to ?? [], about: correlation_id ?? [], at, raw });
        const facts = (p) => ({
            state: p.status,
            votes: p.votesNeeded ? `${p.votesNeeded - p.votesMissing} of ${p.votesNeeded}` : "",
            reason: p.reason || null, fulfilled_by: p.fulfilledBy || null, assessed_by: p.assessedBy || null,
            rejected_by: Object.fromEntries(p.rejections.map((each) => [each.by, each.reason])),
            inputs: p.inputs.length, origins: p.origins?.why ?? null,
        });
        return streams.map((stream) => {
            const proposals = new Proposals();
            for (const { at, raw, page } of stream) {
                if (raw) proposals.receive(JSON.parse(raw), rowOf(JSON.parse(raw), raw, at * 1000));
                if (page) proposals.restorePage(page);
            }
            return Object.fromEntries([...proposals.byId].map(([id, each]) => [id, facts(each)]));
        });
        }""",
        [
            [{"at": each.at, "raw": each.raw, "page": each.page} for each in heard]
            for _, _, heard, _ in streams
        ],
    )
    wrong = []
    for (story, way, _, expected), answer in zip(streams, found, strict=True):
        try:
            late = way.startswith("late")
            _compare(answer, expected, only_known=late, untold=_UNTOLD if late else ())
        except AssertionError as fault:
            wrong.append(f"{story.name} ({way}): {str(fault).splitlines()[0:4]}")
    assert wrong == []
