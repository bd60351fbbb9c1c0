"""What `moot/opinion` may say: Python and the console take and refuse the same, and nothing unbounded."""

from __future__ import annotations

from typing import Final

import msgspec
import pytest

from moot.participant.connection.payload_shapes import PayloadShapeError, check_shape
from moot.protocol.dialects import DIALECTS
from moot.protocol.operation import Json
from moot.protocol.opinion import read_opinion
from moot.protocol.proposal_life import MAX_REPORTERS, ProposalLife
from moot.protocol.proposal_tracker import ProposalTracker
from tests.console.in_node import in_node

NO: Final[Json] = {"says": "no", "because": "it leaves the folder"}
GOOD: Final[list[Json]] = [
    NO,
    {"says": "ask", "because": "😀" * 200, "model": "m", "later": 1},
]
BAD: Final[list[Json]] = [
    {},
    {"says": "yes", "because": "x"},
    {"says": "approve", "because": "x"},
    {"says": "no"},
    {"says": "no", "because": ""},
    {"says": "no", "because": "x" * 201},
    {"says": "no", "because": "two\nlines"},
    {"says": "no", "because": "a\u202eb"},
    {"says": "no", "because": "a\u00a0b"},
    {"says": "no", "because": "a\u2028b"},
    {"says": "no", "because": ["x"]},
    {"says": "no", "because": "x", "model": 1},
]
TEXT: Final = "Second opinion of review, in a model's words: no, because it leaves the folder"


def test_python_and_the_console_read_the_same_opinions() -> None:
    found = in_node(
        """async (bring, payloads) => {
        const { readOpinion, opinionText } = await bring("core/state/opinion.js");
        return payloads.map((each) => readOpinion(each) && opinionText(readOpinion(each), "review"));
        }""",
        [*GOOD, *BAD],
    )
    assert found == [*(read_opinion(each).text("review") for each in GOOD), *[None] * len(BAD)]
    assert found[0] == TEXT
    for each in BAD:
        with pytest.raises(PayloadShapeError):
            check_shape("moot/opinion", each, ["p1"], None)


def _message(sender: str, payload: Json) -> str:
    envelope: Json = {
        "protocol": "mew/v0.4", "id": f"o-{sender}", "ts": "2026-11-18T12:00:00Z", "from": sender,
        "kind": "moot/opinion", "correlation_id": ["p1"], "payload": payload,
    }  # fmt: skip
    return msgspec.json.encode(envelope).decode()


def test_an_opinion_changes_no_state_and_nobody_has_one_on_their_own_proposal() -> None:
    heard = [_message("agent", NO), *(_message(f"r{n}", NO) for n in range(MAX_REPORTERS + 1))]
    tracker = ProposalTracker[ProposalLife]()
    life = tracker.track(ProposalLife(id="p1", proposer="agent"))
    for each in heard:
        tracker.apply(DIALECTS["mew"].decode(each.encode()), 1.0)
    by = [f"r{n}" for n in range(MAX_REPORTERS)]
    assert (life.state, list(life.opinions), list(life.rejections)) == ("pending", by, [])
    found = in_node(
        """async (bring, heard) => {
        const { Proposals } = await bring("core/state/state-proposals.js");
        const proposals = new Proposals();
        const payload = { method: "tools/call" };
        const proposal = { id: "p1", kind: "mcp/proposal", from: "agent", to: [], payload };
        for (const raw of [JSON.stringify(proposal), ...heard]) {
            const { id, from, correlation_id } = JSON.parse(raw);
            proposals.receive(JSON.parse(raw), { id, from, to: [], about: correlation_id ?? [], at: 1, raw });
        }
        const { status, opinions } = proposals.byId.get("p1");
        return { status, by: [...opinions.keys()] };
        }""",
        heard,
    )
    assert found == {"status": "pending", "by": by}
