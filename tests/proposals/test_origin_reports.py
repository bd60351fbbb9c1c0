"""What `moot/origins` may say: Python and the console take and refuse the same, and nothing unbounded."""

from __future__ import annotations

from typing import Final

import pytest

from moot.participant.connection.payload_shapes import PayloadShapeError, check_shape
from moot.protocol.operation import Json
from moot.protocol.origin_report import read_report
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
