"""Numbers are the same to the last digit wherever they are shown, sent and copied."""

from __future__ import annotations

import httpx
from playwright.sync_api import expect

from moot.protocol.operation import Json
from tests.console.approvals_page import detail, shown
from tests.console.conftest import MemberAs, PageAs
from tests.console.gateway_and_members import Running, gathered
from tests.console.test_approvals import heard
from tests.waiting import HANG_SECONDS

BIG, SMALL = "9007199254740993", "0.1e-7"
ROUNDED = ("9007199254740992", "1e-8")
ARGUMENTS = f'{{"amount":{BIG},"rate":{SMALL},"deep":{{"n":[{BIG},{SMALL}]}}}}'
CALL = f'"method":"tools/call","params":{{"name":"pay","arguments":{ARGUMENTS}}}'


def post(gateway: Running, name: str, text: str) -> str:
    """A message as it is written here, digit by digit."""
    answer = httpx.post(
        f"{gateway.url}/participants/{name}/messages",
        params={"space": "lab"},
        content=text,
        headers={"Authorization": f"Bearer t-{name}", "Content-Type": "application/json"},
        trust_env=False,
        timeout=HANG_SECONDS,
    )
    assert answer.status_code == 200, answer.text
    return str(answer.json().get("id", ""))


def test_every_view_shows_and_sends_all_digits(gateway: Running, page_as: PageAs, member: MemberAs) -> None:
    member("files")
    member("agent")
    watcher = member("watcher")
    page = page_as("human", "approvals", permissions=["clipboard-read", "clipboard-write"])

    def says_all(where: str, *more: str) -> None:
        place = page.locator(where)
        expect(place).to_contain_text(BIG)
        expect(place).to_contain_text(SMALL)
        text = place.inner_text()
        assert not any(each in text for each in (*ROUNDED, *more)), text

    post(gateway, "agent", f'{{"kind":"mcp/proposal","to":["files"],"payload":{{{CALL}}}}}')
    shown(page, "pay")
    says_all(".approvals-detail")
    says_all(".approvals-list")
    detail(page).get_by_role("button", name="Copy arguments").click()
    expect(page.locator(".notice").filter(has_text="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert f'"amount": {BIG}' in copied
    assert f'"rate": {SMALL}' in copied

    pattern = f'{{"kind":"mcp/request","payload":{{{CALL}}},"to":["files"]}}'
    post(
        gateway,
        "human",
        f'{{"kind":"capability/grant","to":["agent"],"payload":{{"recipient":"agent","capabilities":[{pattern}]}}}}',
    )
    page.evaluate("location.hash = '#/lab/members/agent'")
    details = ".panes-detail .permissions"
    says_all(details)
    page.get_by_role("button", name="Show JSON").click()
    says_all(f"{details} li:last-child .right-json")
    page.locator(details).get_by_role("button", name="Copy this permission as JSON").last.click()
    page.wait_for_function(
        "async (digits) => (await navigator.clipboard.readText()).includes(digits)", arg=BIG
    )
    # What is typed is granted as it is typed.
    sent: list[Json] = []
    watcher.run(lambda space: heard(space, "capability/grant", sent))
    page.get_by_role("button", name="Add permission").click()
    dialog = page.locator("dialog")
    dialog.locator("textarea").fill(pattern.replace('"pay"', '"pay_more"'))
    dialog.get_by_role("button", name="Grant", exact=True).click()
    (grant,) = gathered(sent, 1)
    given = grant.payload["capabilities"][0]["payload"]["params"]
    assert given["arguments"]["amount"] == int(BIG)

    page.evaluate("location.hash = '#/lab/members/files'")
    post(gateway, "files", f'{{"kind":"participant/status","payload":{{"tokens":{BIG},"rate":{SMALL}}}}}')
    says_all(".status-report")

    for view in ("timeline", "flow"):
        page.evaluate(f"location.hash = '#/lab/{view}'")
        expect(page.locator("main")).to_contain_text("pay")
        text = page.locator("main").inner_text()
        assert not any(each in text for each in ROUNDED), (view, text)
    page.evaluate("location.hash = '#/lab/timeline'")
    says_all("[role=listbox]")
