"""Tables: columns in line, cut to a terminal's width, whole in a pipe; and one spelling of fields in JSON."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.cli.process.table_output import TableWriter
from moot.operations.member_operations import _rights
from moot.operations.text.text_table import TextTable, cut, display_width
from moot.participant import JoinedSpace
from moot.protocol.operation import Json
from tests.cli.space_with_members import SpaceWithMembers


def test_columns_stand_in_line_and_numbers_to_the_right() -> None:
    table = TextTable(("NAME", "COUNT", "TEXT"), [("a", "7", "x"), ("longer", "12", "")], right={1})
    assert table.lines() == ["NAME    COUNT  TEXT", "a           7  x", "longer     12"]


def test_details_stand_below_their_row_and_are_never_cut() -> None:
    table = TextTable(("ID", "CALL"), [("1", "write")], [["path: " + "x" * 50]])
    assert table.lines(20) == ["ID  CALL", "1   write", "    path: " + "x" * 50]


def test_characters_of_two_cells_and_of_none_are_counted_so() -> None:
    assert (display_width("日本"), display_width("e\u0301"), display_width("naïve")) == (4, 1, 5)
    assert TextTable(("N", "T"), [("日本", "x"), ("ab", "y")]).lines() == ["N     T", "日本  x", "ab    y"]
    assert cut("日本語", 5) == "日本…"
    assert cut("日本語", 6) == "日本語"


def test_what_others_wrote_is_escaped_in_a_cell() -> None:
    assert TextTable(("N",), [("red \x1b[31m\nforged",)]).lines()[1] == "red \\x1b[31m\\nforged"


def test_the_widest_column_gives_way_first() -> None:
    table = TextTable(("NAME", "DESCRIPTION"), [("files", "w" * 60), ("a" * 12, "w")])
    lines = table.lines(40)
    assert max(map(display_width, lines)) == 40
    assert lines[1].endswith("w…")
    assert "a" * 12 in lines[2]


@given(st.lists(st.tuples(st.text(max_size=90), st.text(max_size=90), st.text(max_size=20)), max_size=5))
def test_no_line_is_wider_than_the_terminal(rows: list[tuple[str, str, str]]) -> None:
    lines = TextTable(("ONE", "TWO", "THREE"), rows).lines(40)
    assert all(display_width(line) <= 40 for line in lines)
    assert len(lines) == len(rows) + 1


class Terminal(io.StringIO):
    """An output that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def written(
    output: io.StringIO, rows: Iterator[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    monkeypatch.setattr("sys.stdout", output)
    TableWriter("NUMBER", "TEXT", right={0}).write(rows)
    return output.getvalue().splitlines()


def test_in_a_pipe_nothing_is_cut_and_on_a_terminal_everything_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((30, 24)))
    # More rows than are looked at before the first is printed; a later one is longer than all of them.
    rows = [(str(number), "x" * 20) for number in range(300)] + [("1000000", "y" * 50)]
    piped = written(io.StringIO(), iter(rows), monkeypatch)
    assert (piped[0], piped[1]) == ("NUMBER  TEXT", f"     0  {'x' * 20}")
    assert piped[-1] == f"1000000  {'y' * 50}"
    shown = written(Terminal(), iter(rows), monkeypatch)
    assert max(map(len, shown)) <= 30
    assert all("\x1b" not in line for line in shown)


def test_an_empty_list_has_no_headings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert written(io.StringIO(), iter(()), monkeypatch) == []


def keys_of(value: Any) -> Iterator[str]:
    """The names of all fields that are ours: what a tool, a capability or a schema says stays as it is."""
    if isinstance(value, list):
        for each in value:
            yield from keys_of(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield key
            if key not in ("result", "params", "arguments", "input_schema", "capabilities", "rule"):
                yield from keys_of(each)


@pytest.fixture
def host(lab: SpaceWithMembers) -> JoinedSpace:
    space = lab.join("host")

    async def offer() -> None:
        @space.tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

    lab.do(offer())
    return space


@pytest.mark.usefixtures("host")
def test_fields_of_all_commands_are_spelled_alike(lab: SpaceWithMembers) -> None:
    lab.join("agent")
    answers = [
        lab.value("members"),
        lab.value("tools", "host"),
        lab.value("send", "hello"),
        lab.value("call", "host", "add", "a:=1", "b:=2"),
        proposed := lab.value("call", "host", "add", "a:=1", "--propose", "--no-wait", "--as", "agent"),
        listed := lab.value("proposals"),
        lab.value("reject", proposed["id"]),
        grant := lab.value("member", "grant", "agent", "acme/thing"),
        lab.value("member", "revoke", "agent", "--grant", grant["id"]),
        lab.value("member", "invite", "carol"),
    ]
    for key in keys_of(answers):
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", key), key
    assert listed[0]["id"] == proposed["id"] == proposed["proposal_id"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", listed[0]["proposed_at"])
    # One word for the same thing.
    assert {"host", "recipient", "participant", "proposal", "ts"} & set(keys_of(answers)) == set()


@pytest.mark.usefixtures("host")
def test_lists_for_people_have_headings(lab: SpaceWithMembers) -> None:
    assert lab.output_of("members").splitlines()[0] == "NAME         PERMISSIONS"
    assert lab.output_of("tools", "host").splitlines() == [
        "MEMBER  TOOL  ARGUMENTS  DESCRIPTION",
        "host    add   a, b       Add two numbers.",
    ]
    assert lab.output_of("proposals") == "no pending proposals\n"


def test_a_permission_with_several_kinds_is_shown_as_these() -> None:
    several: list[Json] = ["chat", {"kind": ["mcp/reject", "mcp/response"]}, {"kind": "mcp/proposal"}]
    assert _rights(several) == "chat, mcp/reject, mcp/response, mcp/proposal"


def test_a_permission_for_some_tools_is_shown_in_words() -> None:
    names: list[Json] = ["list_files", "read_file", "search_files"]
    payload: Json = {"method": "tools/call", "params": {"name": names}}
    shown = _rights(["chat", {"kind": "mcp/request", "payload": payload, "to": ["files"]}])
    assert shown == "chat, call list_files, read_file or search_files on files"
