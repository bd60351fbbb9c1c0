"""Some conformance vectors with their members on three gateways; `make soak` plays all of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moot.conformance.runner import Failed
from moot.conformance.vectors import Vector, read_vectors, vectors_in
from moot.protocol.operation import Json
from moot.space.config import Name
from tests.gateway.cluster.spread_vectors import SpreadCluster, needs_own_journal

FILES = (
    "11-proposals.yaml",
    "31-invites-and-kicks.yaml",
    "33-control.yaml",
    "34-streams.yaml",
    "63-mixed-dialects.yaml",
    "90-stories.yaml",
)
ACTS = ("send", "frame", "join", "leave", "wait")
SPACE: Json = {"participants": {"alice": ["*"], "bob": ["*"], "carol": ["chat"]}}
CHAT: Json = {"by": "bob", "send": {"id": "c1", "kind": "chat", "payload": {"text": "hi"}}}
OPEN: Json = {
    "by": "alice",
    "send": {"id": "o1", "kind": "stream/request", "payload": {"direction": "upload"}},
}
OPENED: Json = {"kind": "stream/open", "payload": {"stream_id": "$save:stream"}}
FRAME: Json = {"by": "alice", "frame": "#{{stream}}#1"}
# The last step of each says something false.
FALSE: dict[str, list[Json]] = {
    "refused": [CHAT | {"refused": "capability_violation"}],
    "heard by some": [CHAT | {"relayed": ["alice", "bob"]}],
    "another text": [CHAT | {"hear": {"others": [{"kind": "chat", "payload": {"text": "ho"}}]}}],
    "leave of nobody": [{"leave": "carol"}],
    "frame of nobody": [OPEN | {"relayed": True, "hear": {"others": [OPENED]}}, FRAME],
}


def _richest(file: str) -> Vector:
    """The story of a file in which the most different things are done."""
    stories = [each for each in vectors_in(file) if not needs_own_journal(each)]
    return max(stories, key=lambda each: (len(_acts(each)), len(each.steps)))


def _acts(vector: Vector) -> set[str]:
    return {act for act in ACTS for step in vector.steps if getattr(step, act) is not None}


def _inline(steps: list[Json], **more: Json) -> Vector:
    story = {"name": "x", "rows": [], "space": SPACE, "steps": steps}
    (vector,) = read_vectors(json.dumps([story | more]), "inline")
    return vector


def test_vectors_with_their_members_on_three_gateways(settings: dict[str, Json], tmp_path: Path) -> None:
    """One of each file; what is false is noticed, also when another gateway would tell it."""
    chosen = {f"v{file[:2]}": _richest(file) for file in FILES}
    assert set().union(*map(_acts, chosen.values())) == set(ACTS)
    false = {name.replace(" ", "-"): _inline(steps) for name, steps in FALSE.items()}
    journal = next(vector for vector in vectors_in(FILES[0]) if needs_own_journal(vector))
    more = {"without-journal": journal, "differs": _inline([CHAT | {"relayed": True}], join=["alice", "bob"])}
    cluster = SpreadCluster(tmp_path / "spread", settings, chosen | false | more)
    try:
        for number, space in enumerate(chosen):
            sockets = cluster.play(space, number)
            assert sum(map(bool, sockets)) > 1, (space, sockets)
        for space in false:
            with pytest.raises(Failed):
                cluster.play(space)
        # The disk of a gateway is its own affair: the log keeps what is proposed.
        with pytest.raises(Failed, match="step 2: "):
            cluster.play("without-journal")
        del cluster.gateways[2].directory.hosts["differs"].space.state.roster.members[Name("carol")]
        with pytest.raises(AssertionError, match="differs between gateways"):
            cluster.play("differs")
    finally:
        cluster.stop()
