"""A member's transcript: budget, forgetting, compaction, and prompts made of it (MEW 3.5.6, 3.9)."""

from __future__ import annotations

import pytest

from moot.errors import UsageError
from moot.participant import Transcript
from moot.protocol.dialects import MEW
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json


def envelope_of(kind: str = "chat", *, id: str, sender: str = "bob", **more: Json) -> Envelope:
    import orjson

    fields: dict[str, Json] = {
        "protocol": "mew/v0.4",
        "id": id,
        "ts": "2026-01-01T00:00:00Z",
        "from": sender,
        "kind": kind,
        "payload": {"text": f"text of {id}", "method": "x", "message": "m"},
    }
    return MEW.decode(orjson.dumps(fields | more))


def ids(transcript: Transcript) -> list[str]:
    return [entry.envelope.id for entry in transcript.entries()]


def test_beyond_the_budget_the_oldest_goes() -> None:
    transcript = Transcript(max_tokens=100, count=lambda _: 30)
    for n in range(5):
        transcript.add(envelope_of(id=str(n)))
    assert ids(transcript) == ["2", "3", "4"]
    assert transcript.tokens == 90
    assert transcript.headroom == 10
    few = Transcript(max_messages=2)
    for n in range(5):
        few.add(envelope_of(id=str(n)))
    assert ids(few) == ["3", "4"]


@pytest.mark.requirement("MEW-3.9.8-1", "MEW-3.9.8-2")
def test_clearing_takes_what_forgetting_must_leave() -> None:
    transcript = Transcript()
    for n in range(4):
        transcript.add(envelope_of(id=str(n)), protected=n == 0)
    transcript.protect("2")
    transcript.notes["scratch"] = 1
    transcript.summary = "earlier"
    assert transcript.forget("oldest", 10) == 2
    assert ids(transcript) == ["0", "2"]
    assert transcript.forget("newest") == 0
    transcript.clear()
    assert ids(transcript) == []
    assert transcript.tokens == 0
    assert transcript.notes == {}
    assert transcript.summary == ""


def test_forgetting_without_a_number_takes_half() -> None:
    transcript = Transcript()
    for n in range(5):
        transcript.add(envelope_of(id=str(n)))
    assert transcript.forget("newest") == 3
    assert ids(transcript) == ["0", "1"]


async def test_compacting_summarises_what_goes() -> None:
    async def words(gone: list[Envelope]) -> str:
        return f"{len(gone)} messages"

    transcript = Transcript(max_tokens=100, count=lambda _: 10, summarise=words)
    for n in range(8):
        transcript.add(envelope_of(id=str(n)), protected=n == 1)
    freed = await transcript.compact(30)
    assert freed is not None
    assert (freed.tokens, freed.messages, freed.summary) == (50, 5, "5 messages")
    assert ids(transcript) == ["1", "6", "7"]
    assert transcript.summary == "5 messages"
    assert await transcript.compact(30) is None
    assert transcript.compactions == 1


@pytest.mark.requirement("MEW-3-65", "MEW-3.5.6-2", "MEW-3.5.6-3", "MEW-3.5.6-4", "MEW-3.8.1-18")
def test_a_prompt_leaves_others_thoughts_out_but_never_a_request() -> None:
    transcript = Transcript()
    transcript.add(envelope_of(id="chat"))
    transcript.add(envelope_of("reasoning/thought", id="theirs", context="start-1"), foreign=True)
    transcript.add(envelope_of("mcp/request", id="asked", context="start-1"), foreign=True)
    transcript.add(envelope_of("mcp/proposal", id="proposed", context="start-1"), foreign=True)
    transcript.add(envelope_of(id="to-me", context="start-1", to=["me"]), foreign=True)
    transcript.add(envelope_of("reasoning/thought", id="mine", sender="me", context="a/b"))
    transcript.add(envelope_of("system/welcome", id="welcome", sender="system:gateway", to=["carol"]))
    kept = [envelope.id for envelope in transcript.prompt("me")]
    assert kept == ["chat", "asked", "proposed", "to-me", "mine"]
    everything = [envelope.id for envelope in transcript.prompt("me", foreign_contexts=True)]
    assert everything == ["chat", "theirs", "asked", "proposed", "to-me", "mine"]
    only = [envelope.id for envelope in transcript.prompt("me", within="a/")]
    assert only == ["asked", "proposed", "to-me", "mine"]


def test_shares_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="report_at_share"):
        Transcript(report_at_share=0.9, compact_at_share=0.5)
