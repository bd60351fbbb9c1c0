"""Reasoning in the console: it grows, it nests, and anybody who may can stop it."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from playwright.sync_api import Page, expect

from moot.errors import ReasoningCancelled
from moot.participant import JoinedSpace
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from tests.console.conftest import MemberAs, PageAs
from tests.console.gateway_and_members import Driven, Running, gathered
from tests.waiting import HANG_SECONDS

HOSTILE = '<img src=x onerror="window.__owned=1">\u202e gnp.evil \x1b[2J\x07'


async def think(space: JoinedSpace, said: asyncio.Queue[str]) -> str:
    """Think what comes; returns who stopped it, or the conclusion."""
    try:
        async with space.reasoning("Plan the release") as reasoning:
            while (thought := await said.get()) != "done":
                await reasoning.thought(thought)
            await reasoning.conclude("Ship it on Monday")
    except ReasoningCancelled as stopped:
        return f"stopped by {stopped.by}: {stopped.reason}"
    return "concluded"


def say(agent: Driven, said: asyncio.Queue[str], words: str) -> None:
    agent.run(lambda _: said.put(words))


@pytest.mark.requirement("MEW-3-16", "MEW-3-17", "MEW-3-18", "MEW-3.5-1", "MEW-3.5.4-1")
def test_thoughts_show_up_as_they_are_thought_and_a_conclusion_ends_them(
    page_as: PageAs, member: MemberAs
) -> None:
    """MEW 3.5."""
    agent = member("agent")
    said: asyncio.Queue[str] = asyncio.Queue()
    page = page_as("human", "reasoning")
    expect(page.get_by_text("No reasoning yet")).to_be_visible()
    thinking = agent.start(lambda space: think(space, said))
    expect(page.locator(".sequence")).to_contain_text("Plan the release")
    for number in range(3):
        say(agent, said, f"step {number}")
        expect(page.locator(".thought")).to_have_count(number + 1)
    say(agent, said, "done")
    expect(page.locator(".ending")).to_contain_text("Ship it on Monday")
    expect(page.get_by_role("button", name="Stop the reasoning of agent")).to_be_hidden()
    assert thinking.result(HANG_SECONDS) == "concluded"


def test_reasoning_of_an_agent_of_the_reference_implementation_shows(
    gateway: Running, page_as: PageAs
) -> None:
    """D-95: it starts with `input`, thinks with `reasoning` and `action`, and concludes with nothing."""
    page = page_as("human", "reasoning")
    expect(page.get_by_text("No reasoning yet")).to_be_visible()

    def say(kind: str, payload: Json, **more: str) -> None:
        answer = httpx.post(
            f"{gateway.url}/participants/agent/messages?space=lab",
            json={"kind": kind, "payload": payload} | more,
            headers={"Authorization": f"Bearer {gateway.token('agent')}"},
            timeout=HANG_SECONDS,
        )
        assert answer.status_code == 200, answer.text

    say("reasoning/start", {"input": "What is 2 + 3?"}, id="reason-1")
    expect(page.locator(".sequence-title")).to_contain_text("What is 2 + 3?")
    say("reasoning/thought", {"reasoning": "Add them", "action": "add"}, context="reason-1")
    expect(page.locator(".thought")).to_contain_text("Add them → add")
    say("reasoning/conclusion", {}, context="reason-1")
    expect(page.get_by_role("button", name="Stop the reasoning of agent")).to_be_hidden()


@pytest.mark.requirement("MEW-3.5.5-6")
def test_reasoning_whose_start_was_not_heard_is_shown_and_can_be_stopped(
    page_as: PageAs, member: MemberAs
) -> None:
    """Said before the gateway's memory begins, or during a gap: any active sequence can be cancelled."""
    agent, watcher = member("agent"), member("watcher")
    cancels: list[Envelope] = []
    watcher.run(lambda space: space.on("reasoning/cancel")(cancels.append))
    page = page_as("human", "reasoning")
    thought = {"message": "where was I?"}
    agent.run(lambda space: space.send("reasoning/thought", thought, context="long-ago/start-1"))
    sequence = page.locator(".sequence")
    expect(sequence).to_contain_text("Started before you joined")
    expect(sequence.locator(".thought")).to_contain_text("where was I?")
    page.get_by_role("button", name="Stop the reasoning of agent").click()
    expect(sequence.locator(".ending")).to_contain_text("by human")
    assert gathered(cancels, 1)[0].context == "long-ago/start-1"


@pytest.mark.requirement("MEW-3-19", "MEW-3.5.5-1", "MEW-3.5.5-2", "MEW-3.5.5-6")
def test_the_stop_button_cancels_the_reasoning_of_another_member(page_as: PageAs, member: MemberAs) -> None:
    """MEW 3.5.5, D-31: a valid cancel, with the context of the start; the one who thinks stops."""
    agent, watcher = member("agent"), member("watcher")
    cancels: list[Envelope] = []
    watcher.run(lambda space: space.on("reasoning/cancel")(cancels.append))
    page = page_as("human", "reasoning")
    thinking = agent.start(lambda space: think(space, asyncio.Queue()))
    page.get_by_role("button", name="Stop the reasoning of agent").click()
    assert thinking.result(HANG_SECONDS) == "stopped by human: superseded"
    expect(page.locator(".ending")).to_contain_text("by human")
    start = page.locator(".sequence").get_attribute("data-sequence")
    assert [each.context for each in gathered(cancels, 1)] == [start]
    assert list(cancels[0].to) == ["agent"]


@pytest.mark.requirement("MEW-3-62", "MEW-3.5.6-5")
def test_sequences_within_others_are_nested_and_each_is_stopped_by_itself(
    page_as: PageAs, member: MemberAs
) -> None:
    """MEW 3.5.6: contexts are paths, and parallel ones do not mix."""
    agent = member("agent")
    stopped = asyncio.Event()

    async def nested(space: JoinedSpace) -> str:
        async with space.reasoning("Outer question") as outer:
            await outer.thought("needs a closer look")
            try:
                async with outer.sub("Inner question") as inner:
                    await inner.thought("looking")
                    await asyncio.sleep(20)
            except ReasoningCancelled:
                await outer.thought("going on without it")
            await stopped.wait()
        return "outer ended"

    async def other(space: JoinedSpace) -> None:
        async with space.reasoning("Another matter") as one:
            await one.thought("apart")
            await stopped.wait()

    thinking = agent.start(nested)
    apart = agent.start(other)
    page = page_as("human", "reasoning")
    expect(page.get_by_role("heading", name="Active 2")).to_be_visible()
    page.get_by_role("link", name="Outer question").click()
    outer = page.locator(".thinking > .sequence")
    inner = outer.locator(".within > .sequence")
    expect(inner).to_contain_text("looking")
    expect(outer).not_to_contain_text("apart")
    inner.get_by_role("button", name="Stop the reasoning of agent: Inner question").click()
    expect(inner).to_have_attribute("data-status", "cancelled")
    expect(outer).to_contain_text("going on without it")
    expect(outer).to_have_attribute("data-status", "active")
    agent.run(lambda _: stopped.set())
    assert thinking.result(HANG_SECONDS) == "outer ended"
    apart.result(HANG_SECONDS)


def test_reasoning_in_a_stream_is_shown_as_it_is_written_and_stopped_too(
    page_as: PageAs, member: MemberAs
) -> None:
    """MEW 3.10.1: long reasoning beside its thoughts; the stream's page stops it as well."""
    agent = member("agent")
    written = asyncio.Event()

    async def at_length(space: JoinedSpace) -> str:
        try:
            async with space.reasoning("Read everything", stream=True) as reasoning:
                assert reasoning.stream is not None
                await written.wait()
                await reasoning.stream.write("first of ten thousand lines\n")
                await asyncio.sleep(20)
        except ReasoningCancelled as fault:
            return f"stopped by {fault.by}"
        return "went on"

    thinking = agent.start(at_length)
    page = page_as("human", "reasoning")
    expect(page.locator(".sequence-stream")).to_be_visible()
    agent.run(lambda _: written.set())
    expect(page.locator(".sequence-stream .tail")).to_contain_text("first of ten thousand lines")
    page.locator(".sequence-stream h3 a").click()
    page.get_by_role("button", name="Stop reasoning").click()
    assert thinking.result(HANG_SECONDS) == "stopped by human"


def test_hostile_thoughts_are_text_and_huge_ones_are_cut(page_as: PageAs, member: MemberAs) -> None:
    """D-86."""
    agent = member("agent")
    done = asyncio.Event()

    async def hostile(space: JoinedSpace) -> None:
        async with space.reasoning(HOSTILE) as reasoning:
            await reasoning.thought(HOSTILE)
            await reasoning.thought("x" * 200_000)
            await done.wait()

    page: Page = page_as("human", "reasoning")
    thinking = agent.start(hostile)
    expect(page.locator(".thought")).to_have_count(2)
    expect(page.locator(".thought").first).to_contain_text("⟨U+202E⟩ gnp.evil ⟨U+001B⟩[2J⟨U+0007⟩")
    expect(page.get_by_role("button", name="Show all 200,000 characters")).to_be_visible()
    assert page.evaluate("window.__owned") is None
    assert page.locator(".thinking img").count() == 0
    agent.run(lambda _: done.set())
    thinking.result(HANG_SECONDS)


def test_who_may_not_cancel_has_no_stop_button_to_press(page_as: PageAs, member: MemberAs) -> None:
    """D-31: the capability decides."""
    agent = member("agent")
    thinking = agent.start(lambda space: think(space, asyncio.Queue()))
    page = page_as("watcher", "reasoning")
    expect(page.get_by_role("button", name="Stop the reasoning of agent")).to_be_disabled()
    agent.run(lambda space: space.cancel_reasoning(next(iter(space.contexts.active())).id))
    thinking.result(HANG_SECONDS)
