"""What our own tools tell a model stays short, however much there is: it is in its conversation for good."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moot.bridges.space.short_answers import MAX_ANSWER_BYTES, found_result, signature_of, size_of
from moot.mcp.eras import JsonObject
from tests.bridges.served_space import HASTY, served_space, text_of
from tests.bridges.space.test_space_server_decisions import GUEST, set_up
from tests.waiting import until


def offer(number: int, *, description: str = "Does it.", properties: int = 2) -> JsonObject:
    names = {f"argument_{each}": {"type": "string", "description": "x" * 100} for each in range(properties)}
    schema = {"type": "object", "properties": names, "required": ["argument_0"]}
    about: JsonObject = {"name": f"tool_{number}", "kind": "tools", "member": "files", "access": "propose"}
    return about | {"description": description, "inputSchema": schema}


@pytest.mark.parametrize("count", [1, 10, 50])
@pytest.mark.parametrize("size", [1, 40, 400])
def test_what_was_found_fits_and_the_best_have_everything(count: int, size: int) -> None:
    found = [offer(each, description="ü " * 40 * size, properties=size) for each in range(count)]
    result = found_result(found)
    assert size_of(result) <= MAX_ANSWER_BYTES
    about = result["structuredContent"]
    assert json.loads(result["content"][0]["text"]) == about["found"]
    shown = len(about["found"])
    assert shown + about.get("left_off", 0) == count
    assert [each["name"] for each in about["found"]] == [f"tool_{each}" for each in range(shown)]
    assert shown >= min(count, 10)
    if size == 1 and count == 1:
        assert about["found"][0]["inputSchema"] == found[0]["inputSchema"]


def test_arguments_in_a_line_have_what_is_required_first() -> None:
    schema = {
        "properties": {"mode": {"enum": ["a"]}, "path": {"type": "string"}, "n": {"type": "integer"}},
        "required": ["path"],
    }
    assert signature_of(schema) == "path: string, mode?, n?: integer"
    assert (signature_of({}), signature_of(True)) == ("", "")


async def test_a_search_and_an_overview_of_large_calls_are_short_and_name_the_way_to_the_rest(
    tmp_path: Path,
) -> None:
    async with served_space(tmp_path, GUEST) as served:
        _, alice, shown = await set_up(served, limits=HASTY)
        large: dict[str, Any] = {"path": "b", "text": "é" * 50_000}
        async with shown.client() as client:
            answers = []
            for number in range(30):
                answers.append(await client.call_tool("write_file", large | {"path": f"b{number}"}))
            await until(lambda: len(alice.proposals.open()) == 30)
            handle = answers[0].meta["moot/pending"]["handle"]  # type: ignore[index]
            answers.append(await client.call_tool("moot_status", {"handle": handle}))
            overview = await client.call_tool("moot_status", {})
            for answer in (*answers, overview):
                # The SDK adds its own name to what it was sent.
                assert len(answer.model_dump_json(by_alias=True, exclude_none=True).encode()) < 4_400
            facts = overview.structured_content
            assert facts is not None
            assert len(facts["calls"]) + facts["left_off"] == 30
            assert f"… and {facts['left_off']} more; ask for one with its handle." in text_of(overview)
            # The newest first.
            newest = answers[29].meta["moot/pending"]["handle"]  # type: ignore[index]
            assert facts["calls"][0]["handle"] == newest
            definition = await client.call_tool("moot_find_tools", {"name": "write_file"})
            assert json.loads(text_of(definition))["inputSchema"]["required"] == ["path", "text"]
            unknown = await client.call_tool("moot_find_tools", {"name": "launch"})
            assert (unknown.is_error, "no tool that you may use" in text_of(unknown)) == (True, True)
