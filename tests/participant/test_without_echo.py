"""A member that hears nothing of its own (D-02): it asks and answers as always, and confirms nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from moot.errors import MemberLeft, UsageError
from moot.protocol.envelope import Envelope
from tests.gateway.lab import on_loop
from tests.participant.gathering import gathering, until


@on_loop
async def test_it_asks_and_answers_and_hears_only_the_others(tmp_path: Path) -> None:
    async with gathering(tmp_path, alice=["*"], bob=["*"]) as party:
        alice = await party.join("alice", echo=False)
        bob = await party.join("bob", participant="bob-7")
        heard: list[tuple[str, str]] = []

        @alice.on("*", own=True)
        def note(envelope: Envelope) -> None:
            heard.append((envelope.sender, envelope.kind))

        @alice.tool
        @bob.tool
        def shout(text: str) -> str:
            return text.upper()

        # By its logical name, which the answer does not carry (D-19).
        assert (await alice.call("bob", "shout", {"text": "hi"})).text == "HI"
        assert (await bob.call("alice", "shout", {"text": "ho"})).text == "HO"
        await bob.chat("done")
        await until(lambda: ("bob-7", "chat") in heard)
        assert all(sender != "alice" for sender, _ in heard)


@on_loop
async def test_whoever_is_not_here_is_not_waited_for(tmp_path: Path) -> None:
    async with gathering(tmp_path, alice=["*"], bob=["*"]) as party:
        alice = await party.join("alice", echo=False)
        with pytest.raises(MemberLeft):
            await alice.call("bob", "shout", {"text": "hi"})


@on_loop
async def test_what_needs_the_gateways_word_says_so(tmp_path: Path) -> None:
    async with gathering(tmp_path, alice=["*"]) as party:
        alice = await party.join("alice", echo=False)
        with pytest.raises(UsageError, match="echo=True"):
            await alice.chat("hello")
