"""A grant for a part of the web: chosen in words in the dialog, kept by the gateway."""

from __future__ import annotations

from playwright.sync_api import expect

from moot.operations.text.capability_text import in_words
from moot.protocol.operation import Json
from moot.protocol.patterns import read_capability
from moot.protocol.patterns.url_prefix import url_prefix_of, url_prefix_pattern, url_prefixes
from tests.console.approvals_page import SETTLED, dialog_button, propose, shown
from tests.console.conftest import MemberAs, PageAs
from tests.console.gateway_and_members import gathered
from tests.console.test_grant_words import granted
from tests.protocol.test_url_prefix import DOCS, INSIDE, OUTSIDE, SITE

_COMPARED = """async ([addresses, prefixes]) => {
  const { urlPrefixes, urlPrefixPattern, urlPrefixOf } = await import("/console/views/capabilities/url-prefix.js");
  const { matches } = await import("/console/views/capabilities/capability-match.js");
  const { describeCapability } = await import("/console/views/capabilities/capability-text.js");
  const patterns = prefixes.map(urlPrefixPattern);
  return {
    patterns, back: patterns.filter(Boolean).map(urlPrefixOf), offered: addresses.map(urlPrefixes),
    words: describeCapability({ kind: "mcp/request", payload: { method: "tools/call", params: { name: "fetch", arguments: { url: patterns[0] } } } }),
    allowed: addresses.map((url) => matches({ kind: "*", payload: { url: patterns[0] } }, "mcp/request", { url }, [])),
  };
}"""  # noqa: E501


def test_a_folder_of_a_site_is_chosen_in_words_and_kept(page_as: PageAs, member: MemberAs) -> None:
    """The browser and the gateway say the same of every address, and the examples are true."""
    member("files")
    agent, watcher = member("agent"), member("watcher")
    grants = granted(watcher)
    propose(agent, "fetch", url="https://a.example/docs/page.html", callback="https://b.example/" + "x" * 80)
    page = page_as("human", "approvals")

    prefixes: list[Json] = [DOCS, SITE, "http://[::1]:8080/a+(b)/", "https://a.example", "https://a.ex*/"]
    answer = page.evaluate(_COMPARED, [[*INSIDE, *OUTSIDE], prefixes])
    patterns = [url_prefix_pattern(str(each)) for each in prefixes]
    assert answer["patterns"] == patterns
    assert answer["back"] == [url_prefix_of(each) for each in patterns if each]
    assert answer["offered"] == [list(url_prefixes(each)) for each in [*INSIDE, *OUTSIDE]]
    assert answer["allowed"] == ["yes"] * len(INSIDE) + ["no"] * len(OUTSIDE)
    fetch: dict[str, Json] = {"name": "fetch", "arguments": {"url": patterns[0]}}
    words = in_words({"kind": "mcp/request", "payload": {"method": "tools/call", "params": fetch}})
    assert answer["words"] == words == f"call fetch with url=anything below {DOCS}"

    shown(page, "fetch")
    page.keyboard.press("Shift+A")
    dialog = page.locator("dialog")
    expect(dialog.get_by_label("This folder")).to_have_count(0)
    dialog.get_by_label("This site").check()
    expect(dialog.locator(".allowed li")).to_contain_text(["this call again", "docs/another", "/elsewhere"])
    dialog.get_by_label("This address").check()
    expect(dialog.locator(".capability-description")).to_contain_text(f"url=anything below {DOCS}")
    expect(dialog.locator(".allowed li")).to_contain_text(["this call again", f"url = {DOCS}another"])
    expect(dialog.locator(".asks")).to_contain_text("url = https://a.example.example.net/docs/another")
    page.wait_for_timeout(SETTLED)
    dialog_button(page, "Approve and grant").click()
    (grant,) = gathered(grants, 1)
    (given,) = grant.payload["capabilities"]
    capability = read_capability(given)
    callback = "https://b.example/" + "x" * 80
    for url, other, allowed in (
        (f"{DOCS}sub/x", callback, True),
        ("https://a.example.evil.net/docs/x", callback, False),
        (f"{DOCS}%2e%2e/x", callback, False),
        # The other address is not left open, however long it is.
        (f"{DOCS}sub/x", "https://evil.net/", False),
    ):
        call: dict[str, Json] = {"name": "fetch", "arguments": {"url": url, "callback": other}}
        payload: dict[str, Json] = {"method": "tools/call", "params": call}
        assert capability.matches("mcp/request", payload, ["files"]) == allowed, (url, other)


def test_an_address_that_is_not_plain_offers_neither(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    propose(member("agent"), "fetch", url="https://a.example@evil.net/docs/x")
    page = page_as("human", "approvals")
    shown(page, "fetch")
    page.keyboard.press("Shift+A")
    dialog = page.locator("dialog")
    expect(dialog.get_by_label("This address")).to_be_disabled()
    expect(dialog).to_contain_text("Not available: url is not written plainly")
