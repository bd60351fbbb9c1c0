"""The call form: made from a tool's schema, sent as a request or as a proposal, followed to its result."""

from __future__ import annotations

import asyncio
from typing import Any

from playwright.sync_api import Locator, Page, expect

from moot.participant import JoinedSpace
from moot.participant.serving.request_server import IncomingRequest
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from tests.console.approvals_page import SETTLED, approve, shown
from tests.console.conftest import MemberAs, PageAs
from tests.console.gateway_and_members import Driven, gathered
from tests.console.test_accessibility import issues
from tests.waiting import until_seen

BIG = 9007199254740993

SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 3, "description": "What it is called"},
        "count": {"type": "integer", "minimum": 1, "default": 2},
        "exact": {"type": "number"},
        "loud": {"type": "boolean"},
        "colour": {"enum": ["red", "green", 7]},
        "mail": {"type": "string", "format": "email"},
        "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "place": {"$ref": "#/$defs/Place"},
        "when": {
            "anyOf": [
                {"type": "string", "title": "a day", "format": "date"},
                {
                    "type": "object",
                    "title": "a span",
                    "properties": {"days": {"type": "integer"}},
                    "required": ["days"],
                },
            ]
        },
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "self": {"$ref": "#"},
    },
    "required": ["title", "count"],
    "additionalProperties": False,
    "$defs": {
        "Place": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "number": {"type": "integer"}},
            "required": ["street"],
        }
    },
}


def offer_form(space: JoinedSpace, given: list[Json], released: asyncio.Event | None = None) -> None:
    async def order(arguments: dict[str, Any]) -> str:
        given.append(arguments)
        return f"ordered {arguments.get('title')}"

    claims: dict[str, Json] = {"destructiveHint": True}
    space.tool(order, description="Order <b>something</b>.", input_schema=SCHEMA, annotations=claims)

    @space.tool
    async def slowly(request: IncomingRequest) -> str:
        """Tell how far it is."""
        await request.progress(1, 4, "a quarter")
        if released is not None:
            await released.wait()
        return "at last"


def field(page: Page, label: str) -> Locator:
    return page.locator(".call-form").get_by_label(label).first


def tools(page: Page) -> Locator:
    return page.get_by_role("navigation", name="Tools", exact=True)


def confirm(page: Page) -> None:
    """What declares that it is destructive is asked about first."""
    page.get_by_role("dialog").get_by_role("button", name="Run", exact=True).click()


def made(page: Page) -> Locator:
    return page.locator(".made").first


def test_what_was_typed_stays_while_the_list_of_tools_is_asked_for_again(
    page_as: PageAs, member: MemberAs
) -> None:
    files = member("files")
    files.run(lambda space: offer_form(space, []))
    page = page_as("human", "call", "files", "order")
    field(page, "title").fill("half a wo")

    def newer() -> str:
        """Offered later."""
        return ""

    files.run(lambda space: space.tool(newer))
    expect(tools(page).get_by_role("link", name="newer")).to_be_visible()
    expect(field(page, "title")).to_have_value("half a wo")


def test_json_typed_before_the_schema_is_known_stays_when_it_arrives(
    page_as: PageAs, member: MemberAs
) -> None:
    files = member("files")
    page = page_as("human", "call", "files", "order")
    arguments = page.get_by_label("Arguments as JSON")
    arguments.fill('{"title": "half a wo')
    files.run(lambda space: offer_form(space, []))
    expect(page.get_by_role("tab", name="JSON")).to_have_attribute("aria-selected", "true")
    expect(arguments).to_have_value('{"title": "half a wo')
    arguments.fill('{"title": "a whole word"}')
    page.get_by_role("tab", name="Form").click()
    expect(field(page, "title")).to_have_value("a whole word")


def test_a_form_is_made_from_the_schema_checked_at_its_fields_and_sent_as_a_request(
    page_as: PageAs, member: MemberAs
) -> None:
    files = member("files")
    given: list[Any] = []
    files.run(lambda space: offer_form(space, given))
    page = page_as("human", "call")
    page.get_by_label("Search all tools").fill("order")
    tools(page).get_by_role("link", name="order destructive").click()
    expect(page.locator(".call-about")).to_contain_text("Order <b>something</b>.")
    expect(page.locator(".call-about")).to_contain_text("destructive")
    expect(field(page, "count")).to_have_value("2")
    field(page, "title").fill("ab")
    field(page, "count").fill("0")
    field(page, "mail").fill("nobody")
    field(page, "code").fill("x-1")
    page.get_by_role("button", name="Send request").click()
    faults = page.locator(".call-form .fault:not(:empty)")
    expect(faults).to_have_text(
        [
            "must have at least 3 characters",
            "must be at least 1",
            "must be an address such as name@example.org",
            "must match ^[A-Z]{2}-[0-9]+$",
        ]
    )
    expect(field(page, "title")).to_be_focused()
    expect(field(page, "title")).to_have_attribute("aria-invalid", "true")
    assert given == []
    field(page, "title").fill("Tea <script>")
    field(page, "count").fill("3")
    field(page, "exact").fill(f"{BIG}")
    field(page, "loud").select_option("Yes")
    field(page, "colour").select_option("7")
    field(page, "mail").fill("a@example.org")
    field(page, "code").fill("AB-12")
    tags = page.locator(".form-group").filter(has_text="tags")
    for number, word in enumerate(("hot", "green")):
        tags.get_by_role("button", name="Add item").click()
        tags.get_by_label(f"tags {number + 1}").fill(word)
    page.get_by_label("place", exact=True).check()
    field(page, "street").fill("High Street")
    field(page, "when").select_option("a span")
    field(page, "days").fill("5")
    expect(page.locator(".call-way")).to_contain_text("Runs at once, in your name.")
    page.get_by_role("button", name="Send request").click()
    confirm(page)
    expect(made(page)).to_contain_text("ordered Tea <script>")
    expect(made(page).locator(".tag")).to_have_text("done")
    assert given == [
        {
            "title": "Tea <script>",
            "count": 3,
            "exact": BIG,
            "loud": True,
            "colour": 7,
            "mail": "a@example.org",
            "code": "AB-12",
            "tags": ["hot", "green"],
            "place": {"street": "High Street"},
            "when": {"days": 5},
        }
    ]
    assert issues(page) == []


def test_json_is_the_second_tab_and_both_hold_the_same(page_as: PageAs, member: MemberAs) -> None:
    files = member("files")
    given: list[Any] = []
    files.run(lambda space: offer_form(space, given))
    page = page_as("human", "call", "files", "order")
    field(page, "title").fill("Tea")
    page.get_by_role("tab", name="JSON").click()
    text = page.get_by_label("Arguments as JSON")
    expect(text).to_have_value('{\n  "title": "Tea",\n  "count": 2\n}')
    text.fill('{"title": "Milk", ')
    page.get_by_role("tab", name="Form").click()
    expect(page.locator(".call-body")).to_contain_text("Invalid JSON")
    text.fill(f'{{"title": "Milk", "count": 1, "exact": {BIG}, "tags": ["a"], "when": {{"days": 2}}}}')
    page.get_by_role("tab", name="Form").click()
    expect(field(page, "title")).to_have_value("Milk")
    expect(field(page, "exact")).to_have_value(str(BIG))
    expect(field(page, "tags 1")).to_have_value("a")
    expect(field(page, "days")).to_have_value("2")
    page.keyboard.press("Control+Enter")
    confirm(page)
    expect(made(page)).to_contain_text("ordered Milk")
    assert given == [{"title": "Milk", "count": 1, "exact": BIG, "tags": ["a"], "when": {"days": 2}}]


def test_progress_is_shown_while_a_call_runs_and_it_can_be_called_off(
    page_as: PageAs, member: MemberAs
) -> None:
    files = member("files")
    released = files.run(lambda space: asyncio.Event())
    files.run(lambda space: offer_form(space, [], released))
    page = page_as("human", "call", "files", "slowly")
    page.get_by_role("button", name="Send request").click()
    expect(made(page).locator(".progress")).to_contain_text("1 of 4 · a quarter")
    expect(made(page).get_by_role("progressbar")).to_have_attribute("aria-valuenow", "1")
    files.run(lambda space: released.set())
    expect(made(page)).to_contain_text("at last")
    files.run(lambda space: released.clear())
    page.get_by_role("button", name="Send request").click()
    made(page).get_by_role("button", name="Cancel call").click()
    expect(made(page).locator(".tag")).to_have_text("cancelled")


def test_who_may_only_propose_proposes_and_follows_it_to_its_result(
    page_as: PageAs, member: MemberAs
) -> None:
    member("files")
    # Who may not ask for tools knows them from others who did.
    second = member("second")
    page = page_as("agent", "call")
    expect(tools(page)).to_contain_text("do not allow listing its tools")
    second.run(lambda space: space.request("files", "tools/list"))
    tools(page).get_by_role("link", name="add").click()
    field(page, "a").fill("41")
    expect(page.locator(".call-way")).to_contain_text("your permissions do not allow the call itself")
    page.get_by_role("button", name="Propose").click()
    expect(made(page).locator(".tag")).to_have_text("pending")
    person = page_as("human", "approvals")
    shown(person, "agent wants to call add")
    approve(person)
    expect(made(page).locator(".tag")).to_have_text("done")
    expect(made(page)).to_contain_text("42")


def test_who_may_do_both_chooses_and_who_may_do_neither_is_told(page_as: PageAs, member: MemberAs) -> None:
    files = member("files")
    seen: list[Envelope] = []

    def listen(space: JoinedSpace) -> None:
        @space.on("mcp/proposal")
        def remember(envelope: Envelope) -> None:
            seen.append(envelope)

    files.run(listen)
    page = page_as("human", "call", "files", "add")
    field(page, "a").fill("1")
    page.get_by_label("Propose").check()
    page.get_by_role("button", name="Propose").click()
    expect(made(page).locator(".tag")).to_have_text("pending")
    made(page).get_by_role("button", name="Withdraw").click()
    expect(made(page).locator(".tag")).to_contain_text("you withdrew it")
    assert [each.payload for each in gathered(seen, 1)] == [
        {"method": "tools/call", "params": {"name": "add", "arguments": {"a": 1, "b": 1}}}
    ]
    other = page_as("watcher", "call", "files", "add")
    expect(other.locator(".call-way")).to_contain_text("neither calling nor proposing this")
    expect(other.get_by_role("button", name="Propose")).to_be_disabled()


def test_a_changed_version_of_a_proposal_is_ones_own_call(page_as: PageAs, member: MemberAs) -> None:
    """D-28: to run something else, send a request that names no proposal."""
    files, agent = member("files"), member("agent")
    requests: list[Envelope] = []

    def listen(space: JoinedSpace) -> None:
        @space.on("mcp/request")
        def remember(envelope: Envelope) -> None:
            requests.append(envelope)

    files.run(listen)
    _propose_add(agent)
    page = page_as("human", "approvals")
    shown(page, "add")
    page.get_by_role("link", name="Edit and call").click()
    expect(field(page, "a")).to_have_value("5")
    field(page, "a").fill("6")
    page.wait_for_timeout(SETTLED)
    page.get_by_role("button", name="Send request").click()
    expect(made(page)).to_contain_text("16")
    # The page may have the answer before this handler was called.
    (call,) = until_seen(lambda: [each for each in requests if each.payload["method"] == "tools/call"])
    assert list(call.correlation_id) == []


def _propose_add(agent: Driven) -> None:
    call: dict[str, Json] = {"name": "add", "arguments": {"a": 5, "b": 10}}
    agent.run(lambda space: space.propose("files", "tools/call", call, wait_for_others=True))


def test_any_method_can_be_called_with_parameters_as_json(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    page = page_as("human", "call")
    tools(page).get_by_role("link", name="Other method…").first.click()
    page.get_by_label("Method").fill("tools/list")
    page.get_by_role("button", name="Send request").click()
    expect(made(page).locator(".tag")).to_have_text("done")
    expect(made(page)).to_contain_text("read_file")


def test_one_list_has_the_tools_of_everybody_and_can_be_searched(page_as: PageAs, member: MemberAs) -> None:
    member("files")
    member("second").run(lambda space: offer_form(space, []))
    page = page_as("human", "call")
    expect(page.locator(".tools-count")).to_have_text("5 tools")
    page.keyboard.press("/")
    page.keyboard.type("second")
    expect(page.locator(".tools-count")).to_have_text("2 of 5 tools")
    page.get_by_label("Search all tools").fill("replaces what was")
    expect(tools(page).get_by_role("link")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=2, name="write_file on files")).to_be_visible()
    page.get_by_label("Search all tools").fill("no such tool")
    expect(tools(page)).to_contain_text("No tool matches")


def test_nothing_runs_with_an_empty_required_field_or_without_asking(
    page_as: PageAs, member: MemberAs
) -> None:
    """By key, by button, and as JSON; an empty text can be meant, but has to be said."""
    files = member("files")
    ran: list[str] = []

    def offer(space: JoinedSpace) -> None:
        @space.tool
        def delete_file(path: str) -> str:
            ran.append(path)
            return f"deleted {path!r}"

    files.run(offer)
    page = page_as("human", "call", "files", "delete_file")
    field(page, "path").click()
    page.keyboard.press("Control+Enter")
    expect(page.locator(".call-form .fault:not(:empty)")).to_have_count(1)
    expect(field(page, "path")).to_be_focused()
    page.get_by_role("tab", name="JSON").click()
    page.keyboard.press("Control+Enter")
    expect(page.locator(".call-body")).to_contain_text("Not sent, because it does not match the schema")
    page.get_by_role("tab", name="Form").click()
    page.keyboard.press("Control+Enter")
    page.get_by_role("button", name="Send an empty text").click()
    page.keyboard.press("Control+Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("delete_file on files")
    expect(dialog).to_contain_text('"path": ""')
    # Enter does nothing that cannot be undone.
    page.keyboard.press("Enter")
    expect(dialog).to_have_count(0)
    assert ran == []
    field(page, "path").fill("a.txt")
    page.keyboard.press("Control+Enter")
    confirm(page)
    expect(made(page)).to_contain_text("deleted 'a.txt'")
    assert ran == ["a.txt"]
