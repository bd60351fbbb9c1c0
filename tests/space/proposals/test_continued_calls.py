"""The proposer of an approved call brings the input that its host asks for, and nothing else."""

from __future__ import annotations

import pytest

from moot.protocol.operation import Json
from tests.space.space_driver import SpaceDriver

VALUE: Json = {"moot/content": {"sha256": "0" * 64, "bytes": 20_000, "begins_with": "[1"}}
PLACE: dict[str, Json] = {"at": ["arguments", "steps"], "sha256": "0" * 64, "bytes": 20_000}
INPUT: dict[str, Json] = {"requestState": "s1", "inputResponses": {}}


def call(*places: Json, **more: Json) -> Json:
    params: dict[str, Json] = {"name": "deploy", "arguments": {"steps": VALUE}, **more}
    return {"method": "tools/call", "params": params | {"_meta": {"moot/content": list(places)}}}


def asked_for_input() -> SpaceDriver:
    """The agent's call was approved by ana, and its tool wants input."""
    driver = SpaceDriver(participants={"agent": ["mcp/proposal"], "ana": ["*"], "tool": []})
    driver.enter("agent", "ana", "tool")
    assert driver.says("agent", "mcp/proposal", call(PLACE), to=["tool"], id="p1") is None
    assert driver.says("ana", "mcp/request", call(PLACE), to=["tool"], about=["p1"], id="r1") is None
    wants = {"result": {"resultType": "input_required", "requestState": "s1"}}
    assert driver.says("tool", "mcp/response", wants, to=["ana"], about=["r1"]) is None
    return driver


def continues(driver: SpaceDriver, body: Json) -> str | None:
    return driver.says("agent", "mcp/request", body, to=["tool"], about=["p1"])


def test_the_proposer_continues_with_the_same_large_values_once() -> None:
    driver = asked_for_input()
    of_the_input = {**PLACE, "at": ["inputResponses", "file"]}
    assert continues(driver, call(of_the_input, PLACE, **INPUT)) is None
    assert continues(driver, call(PLACE, **INPUT)) == "capability_violation"


@pytest.mark.parametrize("places", [[], [{**PLACE, "json": True}], [PLACE, {**PLACE, "at": ["arguments"]}]])
def test_nobody_approved_that_large_values_are_put_back_otherwise(places: list[Json]) -> None:
    """A text that becomes JSON, or stays out, is another argument."""
    assert continues(asked_for_input(), call(*places, **INPUT)) == "capability_violation"


def test_a_call_that_its_approver_has_cancelled_is_not_continued() -> None:
    driver = asked_for_input()
    cancelled = {"method": "notifications/cancelled", "params": {"requestId": "r1"}}
    assert driver.says("ana", "mcp/request", cancelled, to=["tool"], about=["r1"]) is None
    assert continues(driver, call(PLACE, **INPUT)) == "capability_violation"
