"""Chat in the console: markdown, replies, the acknowledge queue and cancelling (MEW 3.4)."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from moot.participant import JoinedSpace, SentEnvelope
from tests.console.conftest import MemberAs, PageAs


@pytest.mark.requirement("MEW-3.4-3", "MEW-3.4-4", "MCPX-3.3-3", "MCPX-3.3-4", "MEW-3-45")
def test_markdown_is_rendered_only_where_it_is_said_to_be(page_as: PageAs, member: MemberAs) -> None:
    page = page_as("human", "chat")
    agent = member("agent")
    agent.run(lambda space: space.chat("**bold** and `code`", format="markdown"))
    agent.run(lambda space: space.chat("**not bold**"))
    agent.run(lambda space: space.chat("**nor this**", format="plain"))
    messages = page.locator(".chat-message")
    expect(messages).to_have_count(3)
    expect(messages.nth(0).locator("strong")).to_have_text("bold")
    expect(messages.nth(0).locator("code")).to_have_text("code")
    expect(messages.nth(1)).to_contain_text("**not bold**")
    expect(messages.nth(2)).to_contain_text("**nor this**")


@pytest.mark.requirement("MEW-3.4.1-7", "MEW-3.4.1-8", "MEW-3-46")
def test_emptying_the_queue_sends_one_acknowledgement_for_each(page_as: PageAs, member: MemberAs) -> None:
    page = page_as("human", "chat")
    agent = member("agent")

    async def chat_often(space: JoinedSpace) -> list[SentEnvelope]:
        return [await space.chat(f"message {number}") for number in range(23)]

    sent = agent.run(chat_often)
    queue = page.get_by_role("complementary", name="23 to acknowledge")
    expect(queue.locator(".queue-item")).to_have_count(23)
    queue.get_by_role("button", name="Acknowledge message from agent: message 7").click()
    expect(page.get_by_role("complementary", name="22 to acknowledge")).to_be_visible()
    page.get_by_role("button", name="Acknowledge all").click()
    expect(page.get_by_role("complementary", name="Nothing to acknowledge")).to_be_visible()
    agent.sees(
        lambda space: [space.chats.acknowledgements(each.id) for each in sent] == [{"human": "read"}] * 23
    )
    page.evaluate("location.hash = '#/lab/timeline'")
    page.get_by_label("Filter the timeline").fill("kind:chat/acknowledge")
    expect(page.get_by_role("status").filter(has_text="23 of")).to_be_visible()


@pytest.mark.requirement("MEW-3.4.2-1", "MEW-3.4.2-3", "MEW-3.4.2-4", "MEW-3-47")
def test_cancelling_all_of_mine_cancels_each(page_as: PageAs, member: MemberAs) -> None:
    """Others' queues empty; a chat that somebody else cancels leaves ours."""
    page = page_as("human", "chat")
    second = member("second")
    for text in ("one", "two", "three"):
        page.get_by_label("Message", exact=True).fill(text)
        page.keyboard.press("Enter")
        expect(page.locator(".chat-message").filter(has_text=text)).to_be_visible()
    second.sees(lambda space: len(space.chats.pending()) == 3)
    page.get_by_role("button", name="Withdraw").click()
    expect(page.locator(".chat-message.cancelled")).to_have_count(3)
    expect(page.locator(".chat-message.cancelled").first).to_contain_text("handled_elsewhere")
    second.sees(lambda space: space.chats.pending() == [])
    said = second.run(lambda space: space.chat("look at this"))
    expect(page.get_by_role("complementary", name="1 to acknowledge")).to_be_visible()
    second.run(lambda space: space.chats.cancel(said, "duplicate"))
    expect(page.get_by_role("complementary", name="Nothing to acknowledge")).to_be_visible()
    expect(page.locator(".chat-message").filter(has_text="look at this")).to_contain_text("duplicate")


@pytest.mark.requirement("MEW-3-57")
def test_a_reply_names_what_it_answers_and_goes_to_whom_it_is_for(page_as: PageAs, member: MemberAs) -> None:
    page = page_as("human", "chat")
    agent = member("agent")
    asked = agent.run(lambda space: space.chat("may I?"))
    message = page.locator(".chat-message").filter(has_text="may I?")
    message.hover()
    message.get_by_role("button", name="Reply").click()
    page.get_by_label("To", exact=True).select_option("agent")
    page.keyboard.type("yes")
    page.keyboard.press("Enter")
    reply = page.locator(".chat-message").filter(has_text="yes")
    expect(reply.locator(".chat-quote")).to_contain_text("may I?")
    expect(reply).to_contain_text("to agent")
    heard = agent.sees(
        lambda space: [each for each in space.chats.pending() if each.payload["text"] == "yes"]
    )
    assert (heard[0].correlation_id, heard[0].to) == ([asked.id], ["agent"])
    # Who leaves stays the addressee, and the sender is told.
    agent.leave()
    expect(page.get_by_label("To", exact=True).locator("option:checked")).to_have_text(
        "agent (not connected)"
    )
    page.get_by_label("Message", exact=True).fill("still there?")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("agent is not connected and did not receive this message.")


def test_a_long_chat_is_a_window_that_follows_the_end_or_stays_where_one_reads(
    page_as: PageAs, member: MemberAs
) -> None:
    """However much was said, a page of it is drawn; an old one is found, and what comes does not move it."""
    page = page_as("human", "chat")
    agent = member("agent")

    async def chat_often(space: JoinedSpace) -> list[SentEnvelope]:
        return [await space.chat(f"message {number}") for number in range(300)]

    sent = agent.run(chat_often)
    messages = page.locator(".chat-message")
    expect(messages.last).to_contain_text("message 299")
    expect(messages.last).to_be_in_viewport()
    expect(messages).to_have_count(30)
    page.evaluate(f"location.hash = '#/lab/chat/{sent[7].id}'")
    old = messages.filter(has_text="message 7").first
    expect(old).to_be_in_viewport()
    assert messages.count() <= 60
    before = old.bounding_box()
    agent.run(lambda space: space.chat("something new"))
    expect(page.get_by_role("button", name="newer ↓")).to_contain_text("new")
    page.get_by_role("button", name="Acknowledge message from agent: message 7").click()
    expect(messages.filter(has_text="message 7").first).to_contain_text("seen by 1")
    assert before is not None
    after = old.bounding_box()
    assert after is not None
    assert abs(after["y"] - before["y"]) < 2
    page.get_by_role("button", name="newer ↓").click()
    expect(messages.last).to_contain_text("something new")
    expect(messages.last).to_be_in_viewport()
    page.locator(".chat-list").evaluate("(list) => list.scrollTo(0, 0)")
    page.get_by_role("button", name="Show earlier").click()
    expect(messages).to_have_count(60)
    expect(messages.first).to_contain_text("message 241")
