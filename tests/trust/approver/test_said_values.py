"""What is told of a call by the chats of people alone is what the whole memory would tell."""

from __future__ import annotations

import random

import pytest

from moot.origins.argument_origins import is_said_in
from moot.origins.call_leaves import CallLeaf
from moot.origins.origin_call import OriginCall
from moot.origins.origin_memory import OriginMemory
from moot.origins.own_words import own_words
from moot.origins.tool_traits import ToolTraits
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.trust.approver.said_values import MAX_LATER_BYTES, SaidCall, find_said
from tests.origins.spaces import AGENT, NOON, TalkingSpace

WRITES = ToolTraits(outside=False)
# What values, dates and sentences are made of, and what parts them.
PARTS = [
    "bob@example.org",
    "bob@example.org.evil",
    "12",
    "may5@x.org",
    "5",
    "may",
    "friday",
    "GB29",
    "NWBK",
    "6016",
    "a",
    "b",
    "c",
    "Ana",
    "Torres",
    "report.pdf",
    "https://a.example/b",
    "a.example/b",
    "1,200.00",
    "$1200",
    "#13",
    "file",
    "2024-05-19",
    "tomorrow",
    "O'Brien",
    "naïve",
    "K2",
    "-f",
    "x_1",
    "@ana",
    "never",
    "except",
    "/",
]
BETWEEN = (" ", " ", " ", ", ", ". ", "\n", ": ", " - ", "", "'", '"', "> ")


def chat(text: str, to: tuple[str, ...] = (AGENT,), kind: str = "chat") -> tuple[Envelope, bool, float]:
    envelope = Envelope("mew", kind, f"e{hash(text)}", "", "ana", to, [], None, {"text": text}, text.encode())
    return envelope, True, NOON


def call(*, destroys: bool = False, **arguments: Json) -> OriginCall:
    schema = {"properties": {name: {"enum": ["high", "low"]} for name in arguments}}
    traits = ToolTraits(effect="destroys") if destroys else WRITES
    return OriginCall(AGENT, "send", arguments, traits, schema)


def is_said(texts: list[str], asked: OriginCall) -> bool:
    found = find_said(asked, [chat(text) for text in reversed(texts)], OriginMemory(), NOON)
    return found is not None


def test_a_value_that_is_told_to_be_said_is_a_persons_in_the_whole_memory() -> None:
    draws, told = random.Random(36), 0
    for _ in range(3_000):
        said, value = (
            "".join(draws.choice(BETWEEN) + draws.choice(PARTS) for _ in range(draws.randrange(1, most)))
            for most in (9, 3)
        )
        value = draws.choice((value, said[draws.randrange(len(said)) :], draws.choice(PARTS))).strip()
        name = draws.choice(("to", "recipient", "path"))
        leaf = CallLeaf(name, name, value, frozenset())
        if is_said_in(
            own_words(said).said, NOON, leaf, value, OriginCall(AGENT, "send", {name: value}, WRITES), NOON
        ):
            space = TalkingSpace()
            space.ana_says(said)
            assert space.origin("send", **{name: value}).origin == "person", (said, value)
            told += 1
    assert told > 200


@pytest.mark.parametrize("value", ["bob@example.org", "Ana Torres", "report.pdf", "https://a.example/b"])
def test_a_call_whose_values_were_said_needs_no_reading_and_is_told_all_the_same(value: str) -> None:
    asked = call(to=value, urgency="high", copy=False, note="")
    found = find_said(asked, [chat(f"Take {value} please"), chat("Hello")], OriginMemory(), NOON)
    assert isinstance(found, SaidCall)
    assert [each[0].payload["text"] for each in found.chats] == [f"Take {value} please"]
    verdict = found.verdict()
    assert (verdict.asks, verdict.arguments[0].origin, verdict.task) == (
        False, "person", found.chats[0][0].id
    )  # fmt: skip


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("> bob@example.org wrote this", "bob@example.org"),
        ("Write to bob@example.org.evil", "bob@example.org"),
        ("Take 12 34 56 78", "12"),
        ("Write to Bob", [True, False]),
        ("Pay 1200", 1201),
    ],
)
def test_what_is_not_said_as_a_whole_is_looked_at_closely(said: str, value: Json) -> None:
    assert not is_said([said], call(to=value))


def test_what_destroys_what_was_said_before_a_clear_and_what_is_too_long_is_looked_at_closely() -> None:
    assert is_said(["Write to bob@example.org"], call(to="bob@example.org"))
    assert not is_said(["Write to bob@example.org"], call(to="bob@example.org", destroys=True))
    latest = [chat("", kind="participant/clear"), chat("Write to bob@example.org")]
    assert find_said(call(to="bob@example.org"), latest, OriginMemory(), NOON) is None
    long = "Write to bob@example.org " + "and so on " * (MAX_LATER_BYTES // 10)
    assert not isinstance(
        find_said(call(to="bob@example.org"), [chat(long)], OriginMemory(), NOON), SaidCall | None
    )
    assert not is_said([long * 5], call(to="bob@example.org"))
