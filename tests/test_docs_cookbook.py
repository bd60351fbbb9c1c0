"""The YAML cookbook decides as it says: each file is loaded, and calls are tried on both sides of it."""

from __future__ import annotations

from datetime import UTC, datetime

import yaml

from moot.protocol.operation import Json
from moot.trust.history.proposal_case import case_of
from moot.trust.rules.rule_evaluation import evaluate
from moot.trust.rules.rule_yaml import read_rules
from tests.space.space_driver import SpaceDriver
from tests.test_docs import text_of

PAGE = "docs/how-to/yaml-cookbook.md"


def recipe(heading: str) -> str:
    """The YAML below a heading."""
    return text_of(PAGE).partition(f"\n## {heading}\n")[2].partition("```yaml\n")[2].partition("```")[0]


def space_of(heading: str) -> SpaceDriver:
    (settings,) = yaml.safe_load(recipe(heading))["spaces"].values()
    # What `moot up` starts is none of a space's rules.
    servers = {name: ["chat", "mcp/response"] for name in settings.pop("mcp_servers", {})}
    settings.pop("default_participant", None)
    people = {name: each["capabilities"] for name, each in settings.pop("participants").items()}
    driver = SpaceDriver(participants=people | servers, **settings)
    driver.enter(*people, *servers)
    return driver


def call(tool: str, **arguments: Json) -> Json:
    return {"method": "tools/call", "params": {"name": tool, "arguments": arguments}}


def request(space: SpaceDriver, who: str, to: str, body: Json, **more: Json) -> str | None:
    return space.says(who, "mcp/request", {"jsonrpc": "2.0", "id": 1, **body}, to=[to], **more)


def test_an_agent_that_may_read() -> None:
    space = space_of("An agent that may read")
    assert request(space, "agent", "files", call("read_file", path="a.md")) is None
    assert request(space, "agent", "files", {"method": "tools/list"}) is None
    assert request(space, "agent", "files", call("write_file", path="a.md")) == "capability_violation"
    assert space.says("agent", "mcp/proposal", call("write_file", path="a.md"), to=["files"]) is None


def test_only_this_folder() -> None:
    space = space_of("Only this folder")
    assert request(space, "agent", "files", call("write_file", path="notes/a/b.md", text="x")) is None
    for path in ("other/a.md", "notes/../moot.yaml", "/notes/a.md"):
        body = call("write_file", path=path, text="x")
        assert request(space, "agent", "files", body) == "capability_violation", path


def test_three_people_approve() -> None:
    space = space_of("Three people approve")
    deploy = call("deploy", version="1.2")
    assert request(space, "ana", "ops", deploy) == "approval_required"
    assert space.says("agent", "mcp/proposal", deploy, to=["ops"], id="p1") is None
    for who in ("ana", "ben"):
        assert space.says(who, "moot/approve", {}, about=["p1"]) is None
        assert not [each for each in space.received["ops"] if each.get("kind") == "mcp/request"]
    # The third makes the call.
    assert space.says("cleo", "moot/approve", {}, about=["p1"]) is None
    assert [each["from"] for each in space.received["ops"] if each.get("kind") == "mcp/request"] == ["cleo"]


def verdict(heading: str, host: str, body: Json, at: datetime) -> str:
    case = case_of("p1", "agent", [host], body, at=at.timestamp())
    return evaluate(read_rules(recipe(heading)), case, at.timestamp()).decision


def test_only_in_office_hours() -> None:
    report = call("write_file", path="reports/monday.md", text="All quiet.")
    # 11:00 and 22:00 in Berlin, in winter.
    assert (
        verdict("Only in office hours", "files", report, datetime(2026, 12, 1, 10, tzinfo=UTC)) == "approve"
    )
    assert verdict("Only in office hours", "files", report, datetime(2026, 12, 1, 21, tzinfo=UTC)) == "ask"


def test_amounts() -> None:
    now = datetime(2026, 12, 1, 10, tzinfo=UTC)

    def decided(amount: float, **more: Json) -> str:
        return verdict("Amounts", "shop", call("refund", order="4711", amount=amount, **more), now)

    assert [decided(0.01), decided(50.0), decided(50.01), decided(500.0), decided(500.01)] == [
        "approve",
        "approve",
        "ask",
        "ask",
        "reject",
    ]
    assert decided(10.0, currency="BTC") == "ask"


def test_a_budget_for_a_day() -> None:
    space = space_of("A budget for a day")
    assert request(space, "agent", "bank", call("pay", amount=200)) is None
    assert request(space, "agent", "bank", call("pay", amount=1)) == "approval_required"
    assert space.says("agent", "mcp/proposal", call("pay", amount=300), to=["bank"], id="p1") is None
    assert request(space, "you", "bank", call("pay", amount=300), about=["p1"]) is None
    assert request(space, "agent", "bank", call("pay", amount=0.01)) == "budget_exceeded"
    assert request(space, "you", "bank", call("pay", amount=300)) is None
    for count in range(51):
        refusal = request(space, "you" if count % 2 else "agent", "mailer", call("send_mail", to="ana"))
        assert refusal == (None if count < 50 else "budget_exceeded")
