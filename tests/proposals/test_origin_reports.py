"""What `moot/origins` may say: Python and the console take and refuse the same, and nothing unbounded."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import pytest

from moot.operations.text.origin_text import OriginNotes, endorse_choices, exact_value
from moot.participant.connection.payload_shapes import PayloadShapeError, check_shape
from moot.protocol.operation import Json
from moot.protocol.origin_report import ENDORSE_SECONDS, ArgumentReport, read_report
from moot.protocol.proposal_life import ProposalLife
from tests.console.in_node import in_node

ARGUMENT: Final[Json] = {"path": "to", "origin": "untrusted", "text": "from read_email of mail"}
WHOLE: Final[Json] = {
    "asks": True,
    "why": "to: from read_email of mail",
    "task": "c1",
    "arguments": [
        {
            **ARGUMENT,
            "value": "x@y.example",
            "steers": True,
            "text_to": {"ana": "you said this"},
            "at": 1763452800.5,
            "envelope": "m1",
            "place": "payload.text",
            "excerpt": "send it to x@y.example",
            "endorsed_by": "ana",
            "endorsement": "e1",
        }
    ],
    "private": [{"text": "214 characters would leave the space", "characters": 214, "envelope": "m2"}],
    "outside": True,
    "more": 3,
}
GOOD: Final[list[Json]] = [
    WHOLE,
    {"asks": False},
    {"asks": False, "later": {"field": 1}},
    {"asks": True, "why": "😀" * 1_000},
    {"asks": True, "arguments": [ARGUMENT] * 64},
]
BAD: Final[list[Json]] = [
    {},
    {"asks": None},
    {"asks": 1},
    {"asks": True, "why": "x" * 1_001},
    {"asks": True, "arguments": [ARGUMENT] * 65},
    {"asks": True, "arguments": "to"},
    {"asks": True, "arguments": [{**ARGUMENT, "origin": "safe"}]},
    {"asks": True, "arguments": [{**ARGUMENT, "text_to": {"ana": 1}}]},
    {"asks": True, "arguments": [{**ARGUMENT, "at": "now"}]},
    {"asks": True, "arguments": [{**ARGUMENT, "at": -1}]},
    {"asks": True, "arguments": [{**ARGUMENT, "steers": "yes"}]},
    {"asks": True, "arguments": [{**ARGUMENT, "envelope": "x" * 257}]},
    {"asks": True, "arguments": [None]},
    {"asks": True, "private": [{"text": "x", "characters": -1}]},
    {"asks": True, "private": [{"characters": 1}]},
    {"asks": True, "more": 1.5},
    {"asks": True, "outside": "yes"},
]


def _is_taken(payload: Json) -> bool:
    try:
        read_report(payload)
    except ValueError:
        return False
    return True


def test_python_and_the_console_take_and_refuse_the_same() -> None:
    in_console = in_node(
        """async (bring, payloads) => {
        const { readReport } = await bring("core/state/origin-report.js");
        return payloads.map((each) => readReport(each) !== null);
        }""",
        GOOD + BAD,
    )
    assert [_is_taken(each) for each in GOOD + BAD] == [True] * len(GOOD) + [False] * len(BAD)
    assert in_console == [True] * len(GOOD) + [False] * len(BAD)


def test_a_report_is_told_on_as_it_was_sent() -> None:
    assert read_report(WHOLE).as_json() == WHOLE


def test_who_said_it_reads_that_they_did() -> None:
    (argument,) = read_report(WHOLE).arguments
    assert argument.text_for(["ana-7f", "ana"]) == "you said this"
    assert argument.text_for(["bob"]) == "from read_email of mail"


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"value": "x", "source": "m1"},
        {"value": True},
        {"value": None},
        {"value": ["x"]},
        {"source": 1},
        {"revoke": ""},
        {"value": "x", "until": 5},
    ],
)
def test_an_endorsement_names_one_value_or_one_source_or_what_it_revokes(payload: Json) -> None:
    with pytest.raises(PayloadShapeError):
        check_shape("moot/endorse", payload, [], None)


@pytest.mark.parametrize(
    "payload",
    [
        {"value": "x", "task": "c1", "member": "agent", "until": "2026-11-18T22:00:00+00:00"},
        {"value": 12.5},
        {"source": "m1"},
        {"revoke": "e1"},
    ],
)
def test_endorsements_of_the_right_shape_pass(payload: Json) -> None:
    check_shape("moot/endorse", payload, [], None)


def _life(*arguments: Json, **more: Json) -> ProposalLife:
    payload = {"asks": True, "why": "w", "arguments": list(arguments), **more}
    life = ProposalLife(id="p", proposer="agent-7f", proposer_name="agent")
    life.note_origins(read_report(payload), "approver", 1)
    return life


NOW: Final = datetime(2026, 11, 18, 15, 0, tzinfo=UTC)


def test_what_can_be_endorsed_is_bounded_by_task_member_and_tonight() -> None:
    value, source = endorse_choices(_life(WHOLE["arguments"][0] | {"endorsement": ""}, task="c1"), {}, NOW)
    until = value.payload["until"]
    bounds = {"task": "c1", "member": "agent", "until": until}
    assert value.payload == {"value": "x@y.example", **bounds}
    assert source.payload == {"source": "m1", **bounds}
    # Nobody is told of a time that the approver does not keep.
    assert 0 < datetime.fromisoformat(until).timestamp() - NOW.timestamp() <= ENDORSE_SECONDS
    for each in (value, source):
        check_shape("moot/endorse", each.payload, [], None)


def test_what_a_person_said_is_not_endorsed_and_an_endorsement_is_revoked() -> None:
    said = {**ARGUMENT, "origin": "person"}
    endorsed = {**said, "endorsed_by": "ana", "endorsement": "e1"}
    (revoke,) = endorse_choices(_life(said, endorsed, endorsed), {}, NOW)
    assert revoke.payload == {"revoke": "e1"}


# The path and the value of a report, the arguments, and what is endorsed.
EXACT: Final[list[tuple[str, str, Json, str]]] = [
    ("to", "a b", {"to": "a  b"}, "a  b"),
    ("to", "x" * 9 + "…", {"to": "x" * 50}, "x" * 50),
    ("rows[1].id", "b…", {"rows": [{}, {"id": "bcd"}]}, "bcd"),
    # A part of a longer text is endorsed by itself, and what cannot be found not at all.
    ("body", "x@y.example", {"body": "write to x@y.example"}, "x@y.example"),
    ("to", "other…", {"to": "x" * 50}, ""),
    ("to[0]", "b…", {"to": "bc"}, ""),
    ("to[9999]", "b…", {"to": ["bc"]}, ""),
    ("gone", "b…", {}, ""),
]


def test_a_value_is_endorsed_to_the_last_character_or_not_at_all() -> None:
    in_console = in_node(
        """async (bring, cases) => {
        const { exactValue } = await bring("core/state/origin-report.js");
        return cases.map(([path, value, given]) => exactValue({ path, value }, given));
        }""",
        EXACT,
    )
    for (path, value, arguments, exact), shown in zip(EXACT, in_console, strict=True):
        report = ArgumentReport(path=path, origin="nobody", text="t", value=value)
        assert (exact_value(report, arguments), shown) == (exact, exact), path


def test_every_origin_is_handed_out_once_and_none_is_lost() -> None:
    paths = ["to", "to.name (name)", "to[0].id", "total", "elsewhere"]
    life = _life(*({**ARGUMENT, "path": path, "text": f"t {path}"} for path in paths))
    notes = OriginNotes(life.origins, (), with_places=False)
    found = {
        name: [text for _, lines in notes.take_argument(name) for text in lines] for name in ("to", "total")
    }
    assert found["to"] == ["t to", "to.name (name): t to.name (name)", "to[0].id: t to[0].id"]
    assert found["total"] == ["t total"]
    assert [lines for _, lines in notes.take_rest()] == [["elsewhere: t elsewhere"]]
    assert [*notes.take_rest(), *notes.take_argument("to")] == []
