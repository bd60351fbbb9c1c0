"""What a tool's schema says about an argument tells what may vary in it."""

from __future__ import annotations

import uuid
from pathlib import Path

from moot.protocol.operation import Json
from moot.trust.learning.learner import suggest
from tests.trust.approver.test_approver import approver_scene
from tests.trust.histories import START, history

NOW = START + 86_400.0
IDS = [str(uuid.UUID(int=number * 7919 + (number << 90))) for number in range(1, 16)]


def found(schemas: dict[tuple[str, str], Json], argument: str = "code") -> list[list[str]]:
    decisions = history([{argument: each} for each in IDS], tool="look_up")
    rules = [each.rule for each in suggest(decisions, now=NOW, schemas=schemas)]
    return [pattern.texts() for rule in rules for pattern in rule.values.values()]


def declared(format: Json) -> dict[tuple[str, str], Json]:
    return {
        ("files", "look_up"): {"type": "object", "properties": {"code": {"type": "string", "format": format}}}
    }


def test_a_declared_format_tells_what_an_argument_holds() -> None:
    # By its name it would be code, of which only the very same text is approved.
    assert found({}) == []
    assert found(declared("uuid")) == [["<uuid>"]]
    # What does not read as it is declared stays as it was.
    assert found(declared("email")) == []


def test_schemas_of_others_and_odd_ones_say_nothing() -> None:
    schema = declared("uuid")["files", "look_up"]
    assert found({("mail", "look_up"): schema, ("files", "other"): schema}) == []
    odd_schemas: list[Json] = [None, [], "x", {"properties": []}, {"properties": {"code": 1}}]
    for odd in odd_schemas:
        assert found({("files", "look_up"): odd}) == []
    odd_formats: list[Json] = [None, 1, ["uuid"], "unknown"]
    for format in odd_formats:
        assert found(declared(format)) == []


async def test_the_approver_lists_the_schemas_of_the_tools_that_it_learns_about(tmp_path: Path) -> None:
    async with approver_scene(tmp_path) as scene:
        await scene.taught()
        schema = scene.approver.tool_watcher.schemas["files", "write_file"]
        assert schema["properties"].keys() == {"path", "text"}
