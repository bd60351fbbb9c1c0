"""What is drawn of texts: wrapped, escaped, and only what fits a pane."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from textual.app import App, ComposeResult

from moot.errors import UsageError
from moot.participant import MissedMessages
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.tui.bars import fitting_keys
from moot.tui.row_layout import PaneRow, line, wrap_row
from moot.tui.rows import MAX_ROWS, Rows
from moot.tui.text_diff import MAX_DIFF_LINES, difference, edits_in, pair_in, whole_text_in
from moot.tui.timeline import is_background
from moot.tui.timeline_filter import read_filter
from tests.rows import for_each_row
from tests.tui.terminal_session import pane_text, plain_text, terminal_space


def texts_of(row: PaneRow, width: int) -> list[str]:
    return ["".join(text for text, _ in each) for each in wrap_row(row, width)]


def test_a_line_is_folded_after_a_space_and_goes_on_further_in() -> None:
    row = PaneRow("k", (line("the quick brown fox jumps over the lazy dog"),), indent=4)
    assert texts_of(row, 20) == ["the quick brown fox ", "    jumps over the ", "    lazy dog"]


@for_each_row("seed", range(20))
def test_folding_loses_nothing_and_never_exceeds_the_width(seed: int) -> None:
    chance = random.Random(seed)
    letters = "ab c déf 日本語 🎉 \t\x1b[31m\u202e\u0301"
    for _ in range(50):
        text = "".join(chance.choice(letters) for _ in range(chance.randrange(120)))
        width = chance.randrange(8, 60)
        lines = texts_of(PaneRow("k", (line(text),), indent=0), width)
        assert "".join(lines) == plain_text(line(text))
        assert all(cell_len(each) <= width for each in lines)


@pytest.mark.parametrize(
    ("written", "drawn"),
    [
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("\x1b]52;c;aGVsbG8=\x07", "\\x1b]52;c;aGVsbG8=\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("abc\u202edcba\u2066", "abc\\u202edcba\\u2066"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("[red]x[/red] [@click=app.leave]y[/]", "[red]x[/red] [@click=app.leave]y[/]"),
        ("a\rb\x08c\x00", "a\\rb\\x08c\\x00"),
    ],
)
def test_what_a_terminal_might_obey_is_shown_instead(written: str, drawn: str) -> None:
    assert texts_of(PaneRow("k", (line(written),)), 80) == [drawn]


def test_a_line_feed_of_a_peer_begins_no_line_of_ours() -> None:
    """Nobody forges what somebody else said: every line of a message but its first is further in."""
    row = PaneRow("k", (line("12:00:00 agent: hello\n12:00:01 bob: yes, do it"),), indent=11)
    assert texts_of(row, 80)[1].startswith(" " * 11)


# Comparing


def signs(old: str | None, new: str) -> list[str]:
    return [plain_text(each) for each in difference(old, new)]


def test_a_change_is_shown_with_signs_not_with_colour_alone() -> None:
    assert signs("a\nb\nc", "a\nx\nc") == ["@@ -1,3 +1,3 @@", "  a", "- b", "+ x", "  c"]
    assert signs("a", "a") == ["no changes"]


def test_texts_too_long_to_compare_are_shown_whole() -> None:
    """A hostile pair would take minutes otherwise."""
    begin = time.process_time()
    lines = signs(
        "\n".join("ab" * (n % 7) for n in range(MAX_DIFF_LINES)), "\n".join("ba" * (n % 5) for n in range(99))
    )
    assert lines[0] == f"more than {MAX_DIFF_LINES} lines: not compared"
    assert len(lines) == 1 + MAX_DIFF_LINES + 99
    assert time.process_time() - begin < 5


def test_arguments_that_change_files_are_recognised() -> None:
    assert pair_in({"old_string": "a", "new_string": "b"}) == ("old_string", "new_string")
    assert pair_in({"old": "a", "new": 1}) is None
    assert whole_text_in({"file_path": "a.md", "content": "x"}) == ("a.md", "content")
    assert whole_text_in({"content": "x"}) is None
    edit = {"oldText": "a", "newText": "b"}
    assert edits_in({"edits": [edit]}) == ("edits", [edit])
    assert edits_in({"edits": [{"oldText": "a"}]}) is edits_in({"edits": []}) is None
    # As `moot acp` tells the changes of a coding agent; a new file has no old text.
    change = {"path": "a.md", "old_text": None, "new_text": "b"}
    assert edits_in({"input": {}, "changes": [change]}) == ("changes", [change])
    assert signs(None, "a\nb") == ["a new file", "+ a", "+ b"]


# Filters


def envelope_of(sender: str, kind: str, text: str, to: list[str] | None = None) -> Envelope:
    return Envelope("mew", kind, "id", "", sender, to or [], [], None, {"text": text}, text.encode())


def test_a_filter_chooses_by_sender_kind_and_words() -> None:
    chat = envelope_of("agent", "chat", "Look at the Notes", to=["bob"])
    wanted = {
        "": True, "from:agent": True, "from:a*": True, "from:bob": False, "from:bob from:agent": True,
        "kind:chat": True, "kind:mcp/*": False, "-kind:mcp/*": True, "-from:agent": False, "notes": True,
        "-notes": False, "'the notes'": True, "from:agent kind:mcp/*": False,
        "to:bob": True, "to:alice": False,
    }  # fmt: skip
    assert {words: read_filter(words).matches(chat) for words in wanted} == wanted


LIST: Json = {"method": "tools/list"}
RULES: Json = {"method": "tools/call", "params": {"name": "trust_rules"}}
WRITE: Json = {"method": "tools/call", "params": {"name": "write_file"}}
ANSWER: Json = {"result": {"tools": []}}
FAILED: Json = {"error": {"code": 1, "message": "no"}}


@pytest.mark.parametrize(
    ("kind", "to", "about", "payload", "is_hidden"),
    [
        ("mcp/request", ["files"], [], LIST, True),
        ("mcp/request", ["files"], ["p1"], LIST, False),
        ("mcp/request", ["files"], [], WRITE, False),
        ("mcp/request", ["approver"], [], RULES, True),
        ("mcp/request", ["files"], [], RULES, False),
        ("mcp/request", [], [], RULES, False),
        ("mcp/response", ["maria"], ["list"], ANSWER, True),
        ("mcp/response", ["maria"], ["list"], FAILED, False),
        ("mcp/response", ["maria"], ["list"], {"result": {"isError": True}}, False),
        ("mcp/response", ["maria"], ["write"], ANSWER, False),
        ("mcp/response", ["maria"], ["list", "write"], ANSWER, False),
        ("mcp/response", ["maria"], ["unknown"], ANSWER, False),
        ("mcp/proposal", ["files"], [], LIST, False),
    ],
)
def test_only_questions_of_programs_are_background(
    kind: str, to: list[str], about: list[str], payload: Json, is_hidden: bool
) -> None:
    """No mark of a sender hides a call, and no answer hides itself by what it looks like."""

    def message(kind: str, to: list[str], about: list[str], payload: Json) -> Envelope:
        return Envelope("mew", kind, "id", "", "maria", to, about, None, payload, b"")

    known = {
        "list": message("mcp/request", ["files"], [], LIST),
        "write": message("mcp/request", ["files"], [], WRITE),
    }
    found = is_background(message(kind, to, about, payload), known, lambda member: member == "approver")
    assert found == is_hidden


def test_the_line_of_keys_shows_whole_ones_and_always_the_help() -> None:
    keys = {"Decide": "a", "Reject": "r", "Approve and grant": "g", "Help": "f1"}
    assert list(fitting_keys(keys, 80)) == list(keys)
    assert list(fitting_keys(keys, 40)) == ["Decide", "Reject", "Help"]
    assert list(fitting_keys(keys, 10)) == ["Help"]


@pytest.mark.parametrize("words", ["from:", "'open"])
def test_a_filter_that_says_nothing_is_a_mistake(words: str) -> None:
    with pytest.raises(UsageError):
        read_filter(words)


# Panes


class Bare(App[None]):
    """A pane and nothing else."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.rows = Rows(id="rows", **options)

    def compose(self) -> ComposeResult:
        yield self.rows


def rows(start: int, count: int) -> list[PaneRow]:
    return [PaneRow(str(number), (line(f"row {number}"),)) for number in range(start, start + count)]


async def test_a_pane_of_ten_thousand_rows_is_bounded_and_quick() -> None:
    app = Bare(follows=True)
    async with app.run_test(size=(80, 30)) as pilot:
        begin = time.process_time()
        for start in range(0, 30_000, 100):
            app.rows.extend(rows(start, 100))
        took = time.process_time() - begin
        await pilot.pause()
        # The latest are there, the first are not; a bound has a name.
        assert MAX_ROWS <= len(app.rows.rows) <= MAX_ROWS + 500
        assert app.rows.rows[-1].key == "29999"
        assert app.rows.scroll_y == app.rows.max_scroll_y
        # Of CPU, whatever else the machine does; mostly a fraction of it.
        assert took < 15
        begin = time.process_time()
        await pilot.resize_terminal(60, 30)
        await pilot.pause()
        assert time.process_time() - begin < 5


async def test_whoever_has_gone_up_stays_there_while_more_comes() -> None:
    app = Bare(follows=True)
    async with app.run_test(size=(80, 10)) as pilot:
        app.rows.focus()
        app.rows.extend(rows(0, 100))
        await pilot.pause()
        assert app.rows.is_at_end
        await pilot.press("home")
        assert app.rows.selected is not None
        assert app.rows.selected.key == "0"
        app.rows.extend(rows(100, 100))
        await pilot.pause()
        assert app.rows.selected.key == "0"
        assert app.rows.scroll_y == 0
        await pilot.press("end")
        assert app.rows.selected.key == "199"
        # Less room: the end stays in sight.
        await pilot.resize_terminal(80, 5)
        await pilot.pause()
        assert app.rows.scroll_y == app.rows.max_scroll_y == 195
        app.rows.extend(rows(200, 1))
        assert app.rows.selected.key == "200"


async def test_a_click_chooses_and_a_second_one_opens() -> None:
    opened: list[str] = []

    class Clicked(Bare):
        def on_rows_opened(self, event: Rows.Opened) -> None:
            opened.append(event.key)

    app = Clicked()
    async with app.run_test(size=(80, 10)) as pilot:
        app.rows.replace(rows(0, 5))
        await pilot.click(app.rows, offset=(4, 3))
        assert app.rows.selected is not None
        assert (app.rows.selected.key, opened) == ("3", [])
        await pilot.click(app.rows, offset=(4, 3))
        assert opened == ["3"]
        assert "row 4" in pane_text(app.rows)


async def test_a_clock_that_ticks_while_the_terminal_closes_draws_nothing(tmp_path: Path) -> None:
    """Closing takes the screens away before it stops the clocks."""
    async with terminal_space(tmp_path) as space:
        async with space.terminal() as (app, _):
            ticks = [clock._callback for clock in app._timers if clock._callback is not None]
        assert len(ticks) == 3
        assert not app.screen_stack
        app._is_stale, app._stale_ticks = True, 9
        # Its rows wrap, and the last is scrolled to: both ask for the screen.
        app.incoming.put([MissedMessages("slow", 3)])
        for tick in ticks:
            tick()
