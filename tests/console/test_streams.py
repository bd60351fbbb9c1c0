"""Streams in the console: whose they are, what is written, and managing those that one owns."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import expect

from moot.participant import JoinedSpace, StreamHandle
from tests.console.conftest import MemberAs, PageAs
from tests.console.gateway_and_members import Driven

HOSTILE = "<script>window.__owned=1</script>\u202egnp.exe \x1b]0;title\x07\x00"


def opened(agent: Driven, **about: str) -> StreamHandle:
    async def open_one(space: JoinedSpace) -> StreamHandle:
        settings: dict[str, Any] = {"description": "build log", "content_type": "text/plain"} | about
        return await space.streams.open(**settings)

    return agent.run(open_one)


def write(agent: Driven, handle: StreamHandle, data: str | bytes) -> None:
    agent.run(lambda _: handle.write(data))


def test_a_stream_is_listed_and_its_text_is_shown_as_it_is_written(page_as: PageAs, member: MemberAs) -> None:
    """MEW 3.10: owner, writers, readers, and a live tail that can be held still."""
    agent = member("agent")
    page = page_as("human", "streams")
    expect(page.get_by_text("No streams yet")).to_be_visible()
    handle = opened(agent)
    expect(page.get_by_role("heading", name="Open 1")).to_be_visible()
    facts = page.locator(".stream-facts > div")
    expect(facts.filter(has_text="Owner")).to_have_text("Owneragent")
    expect(facts.filter(has_text="Writers")).to_have_text("Writersagent")
    expect(facts.filter(has_text="Readers")).to_have_text("Readerseveryone")
    write(agent, handle, "compiling\n")
    write(agent, handle, "linking\n")
    expect(page.locator(".tail")).to_have_text("compiling\nlinking\n")
    page.keyboard.press("h")
    write(agent, handle, "testing\n")
    expect(page.locator(".tail-status")).to_contain_text("paused, 8 new characters")
    expect(page.locator(".tail")).not_to_contain_text("testing")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".tail")).to_contain_text("testing")
    agent.run(lambda _: handle.close())
    expect(page.get_by_role("heading", name="Closed 1")).to_be_visible()


def test_the_tail_is_bounded_and_follows_the_end(page_as: PageAs, member: MemberAs) -> None:
    """A flood costs no more than the end of it."""
    agent = member("agent")
    handle = opened(agent)
    page = page_as("human", "streams")
    expect(page.locator(".tail")).to_be_visible()

    async def flood(_: JoinedSpace) -> None:
        for number in range(400):
            await handle.write(f"{number:06d} {'x' * 990}\n")

    agent.run(flood)
    expect(page.locator(".tail")).to_contain_text("000399")
    expect(page.locator(".tail")).to_contain_text("earlier characters")
    assert page.evaluate("document.querySelector('.tail').textContent.length") < 80_000
    page.wait_for_function(
        """() => {
            const tail = document.querySelector(".tail");
            return tail.scrollHeight - tail.scrollTop - tail.clientHeight < 30;
        }"""
    )
    expect(page.locator(".tail-status")).to_contain_text("400 frames")


def test_hostile_data_and_names_of_streams_are_text(page_as: PageAs, member: MemberAs) -> None:
    """D-86."""
    agent = member("agent")
    handle = opened(agent, description=HOSTILE, format="<b>bold</b>")
    page = page_as("human", "streams")
    expect(page.locator(".tail")).to_be_visible()
    write(agent, handle, HOSTILE)
    expect(page.locator(".tail")).to_contain_text("<script>window.__owned=1</script>⟨U+202E⟩gnp.exe")
    expect(page.locator(".tail")).to_contain_text("⟨U+0000⟩")
    expect(page.locator(".detail-title")).to_contain_text("⟨U+202E⟩")
    assert page.evaluate("window.__owned") is None
    assert page.locator(".view-streams b, .view-streams script").count() == 0


def test_binary_data_is_shown_by_size_and_its_first_bytes(page_as: PageAs, member: MemberAs) -> None:
    """Nothing of it is taken for text."""
    agent = member("agent")
    handle = opened(agent, content_type="application/octet-stream", description="a picture")
    page = page_as("human", "streams")
    expect(page.locator(".tail")).to_be_visible()
    write(agent, handle, b"\x89PNG\r\n\x1a\n" + bytes(3000))
    expect(page.locator(".tail-status")).to_have_text("1 frame, 2.9 KiB")
    expect(page.locator(".tail")).to_contain_text("89 50 4e 47 0d 0a 1a 0a")
    expect(page.locator(".tail")).not_to_contain_text("⟨U+0089⟩")


def test_readers_are_named_and_who_is_not_one_is_told(page_as: PageAs, member: MemberAs) -> None:
    """MEW 3.10.3: a targeted stream does not reach others."""
    agent = member("agent")
    member("watcher")
    agent.run(lambda space: space.streams.open("watcher", description="for one", content_type="text/plain"))
    page = page_as("human", "streams")
    expect(page.locator(".stream-facts")).to_contain_text("watcher")
    expect(page.locator(".stream-detail")).to_contain_text("You are not a reader of this stream")
    expect(page.locator(".stream-detail")).to_contain_text("Only the owner can close")


def test_an_owner_lets_others_write_stops_them_hands_over_and_closes(
    page_as: PageAs, member: MemberAs
) -> None:
    """MEW 3.10.4 to 3.10.7, from the page of the owner."""
    agent = member("agent")
    files = member("files")
    handle = opened(agent)
    page = page_as("human", "streams")
    facts = page.locator(".stream-facts")
    expect(facts).to_contain_text("agent")
    agent.run(lambda _: handle.transfer("human"))
    dialog = page.locator("dialog")

    page.get_by_role("button", name="Add writer…").click()
    dialog.get_by_label("New writer").select_option("files")
    dialog.get_by_role("button", name="Add writer").click()
    expect(facts.locator("div").filter(has_text="Writers")).to_contain_text("files")
    files.run(lambda space: space.streams.writer(handle.id).write("from files\n"))
    expect(page.locator(".tail")).to_contain_text("from files")

    page.get_by_role("button", name="Remove writer…").click()
    dialog.get_by_role("button", name="Remove writer").click()
    expect(facts.locator("div").filter(has_text="Writers")).not_to_contain_text("files")

    page.get_by_label("Write a line to this stream").fill("from the console")
    page.get_by_label("Write a line to this stream").press("Enter")
    expect(page.locator(".tail")).to_contain_text("from the console")

    page.get_by_role("button", name="Close…").click()
    dialog.get_by_role("button", name="Close", exact=True).last.click()
    expect(page.locator(".detail-title")).to_contain_text("closed")

    other = opened(agent, description="second")
    agent.run(lambda _: other.transfer("human"))
    page.get_by_role("link", name="second").click()
    page.get_by_role("button", name="Transfer…").click()
    dialog.get_by_label("New owner").select_option("files")
    dialog.get_by_role("button", name="Transfer").click()
    expect(facts.locator("div").filter(has_text="Owner")).to_contain_text("files")
