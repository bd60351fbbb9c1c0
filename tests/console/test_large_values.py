"""Values that no message holds: the console tells their size and hash, shows and downloads them."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from playwright.sync_api import Page, expect

from moot.participant import JoinedSpace
from tests.console.approvals_page import approve, detail, outcome, propose, row, shown
from tests.console.conftest import MemberAs, PageAs

TEXT = "".join(f"line {number} of a long text\n" for number in range(50_000)) + "the end"
DIGEST = sha256(TEXT.encode()).hexdigest()


def saved(page: Page, folder: Path, within: str) -> bytes:
    view = page.locator(within)
    with page.expect_download() as download:
        view.get_by_role("button", name="Download").click()
        # Or why not.
        expect(view.get_by_role("status")).to_contain_text("Downloaded")
    file = folder / "saved"
    download.value.save_as(file)
    assert download.value.suggested_filename.startswith("value-")
    return file.read_bytes()


def test_a_large_argument_is_told_and_shown_and_approved(
    page_as: PageAs, member: MemberAs, tmp_path: Path
) -> None:
    member("files")
    agent = member("agent")
    proposal = propose(agent, "write_file", path="notes.txt", content=TEXT)
    page = page_as("human", "approvals", alone=True)
    shown(page, "write_file")
    expect(row(page, "write_file")).to_contain_text(f"content=({len(TEXT):,} bytes)")
    value = detail(page).locator(".large-value")
    expect(value).to_contain_text(DIGEST)
    expect(value).to_contain_text("bytes")
    expect(value).to_contain_text("line 0 of a long text")
    expect(value).not_to_contain_text("the end")
    # It stands for a text, and `_meta` says nothing more than is shown.
    expect(detail(page)).not_to_contain_text("do not match the tool’s schema")
    expect(detail(page)).not_to_contain_text("Other parameters")
    assert saved(page, tmp_path, ".approvals-detail .large-value") == TEXT.encode()
    value.get_by_role("button", name="Show all").click()
    expect(value).to_contain_text("the end")
    approve(page)
    assert not outcome(agent, proposal).is_error


def test_a_large_result_is_told_and_fetched(page_as: PageAs, member: MemberAs, tmp_path: Path) -> None:
    files, agent = member("files"), member("agent")

    async def offer(space: JoinedSpace) -> None:
        @space.tool
        def give() -> str:
            return TEXT

    files.run(offer)
    proposal = propose(agent, "give")
    page = page_as("human", "approvals", alone=True)
    shown(page, "give")
    approve(page)
    assert outcome(agent, proposal).text == TEXT
    result = page.locator(".history-result .large-value")
    expect(result).to_contain_text(f"content.0.text{len(TEXT):,} bytes")
    expect(result).to_contain_text(DIGEST)
    assert saved(page, tmp_path, ".history-result .large-value") == TEXT.encode()
    result.get_by_role("button", name="Show all").click()
    expect(result).to_contain_text("the end")


def test_a_value_that_is_gone_is_said_to_be(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    agent = member("agent")
    propose(agent, "write_file", path="notes.txt", content=TEXT)
    page = page_as("human", "approvals", alone=True)
    shown(page, "write_file")
    page.route("**/content/*", lambda route: route.fulfill(status=404, body="{}"))
    value = detail(page).locator(".large-value")
    value.get_by_role("button", name="Show all").click()
    expect(value).to_contain_text("It could not be fetched: the gateway does not keep it any more.")
    page.unroute("**/content/*")
    page.route("**/content/*", lambda route: route.fulfill(status=200, body="other"))
    value.get_by_role("button", name="Show all").click()
    expect(value).to_contain_text("the gateway sent something else than the message names")
    expect(value).not_to_contain_text("the end")
