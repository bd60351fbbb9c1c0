"""What `moot up` shows, as lines (D-86: nothing a member wrote is obeyed)."""

from __future__ import annotations

import io
import json

from moot.cli.up.status_view import ChangeLines, LiveTable, duration, table
from moot.up.part_status import PartStatus


def status(name: str = "files", **more: object) -> PartStatus:
    facts: dict[str, object] = {"space": "lab", "kind": "member", "state": "running", "since": 10.0} | more
    return PartStatus(name=name, **facts)  # type: ignore[arg-type]  # facts of a test


def test_the_table_fits_the_terminal_and_obeys_nobody() -> None:
    rows = [
        status("gateway", kind="gateway"),
        status("agent", message="\x1b[2J" + "x" * 500, restarts=3, joined=True),
        status("you", kind="person", joined=True),
    ]
    lines = table("lab  http://…", rows, 75.0, width=72, height=24, several=False)
    assert lines[0] == "lab  http://…"
    assert lines[1].split() == ["NAME", "KIND", "STATE", "JOINED", "TIME", "RESTARTS", "MESSAGE"]
    assert lines[2].startswith("agent  member  running  yes     1:05  3         \\x1b[2Jxxx")
    assert lines[3].split() == ["you", "person", "yes"]
    assert all(len(line) <= 72 for line in lines)
    assert len(lines) == 4


def test_more_rows_than_the_terminal_has_lines_are_counted() -> None:
    rows = [status(f"m{number}") for number in range(50)]
    lines = table("t", rows, 0.0, width=80, height=10, several=True)
    assert len(lines) <= 10
    assert lines[2].startswith("lab/m0")
    assert lines[-1] == "… and 44 more: the terminal has 10 lines"


def test_the_table_is_drawn_over_the_last_one() -> None:
    output = io.StringIO()
    live = LiveTable(output, colours=False)
    live.draw(["a", "b"])
    live.draw(["c"])
    assert output.getvalue() == "\ra\x1b[K\nb\x1b[K\n\x1b[J\x1b[2A\rc\x1b[K\n\x1b[J"
    live.forget()
    live.draw(["d"])
    assert output.getvalue().endswith("\x1b[J\rd\x1b[K\n\x1b[J")


def test_lines_tell_what_changed_and_nothing_twice() -> None:
    lines = ChangeLines(as_json=False, several=False)
    assert list(lines.of([status(pid=7)])) == ["files: running, pid 7, not in the space yet"]
    # What it prints is no news.
    assert list(lines.of([status(pid=7, message="busy")])) == []
    assert list(lines.of([status(pid=7, joined=True)])) == ["files: running, pid 7, in the space"]
    waiting = status(state="waiting", message="ended \x1b[1m with exit code 1")
    assert list(lines.of([waiting])) == ["files: waiting (ended \\x1b[1m with exit code 1)"]
    assert next(lines.of([], open_proposals=2)).startswith("pending proposals: 2")


def test_people_come_and_go() -> None:
    lines = ChangeLines(as_json=False, several=True)
    assert list(lines.of([status("you", kind="person", joined=True)])) == ["lab/you: is here"]
    assert list(lines.of([])) == ["lab/you: left"]


def test_changes_for_machines_are_json() -> None:
    lines = ChangeLines(as_json=True, several=False)
    (line,) = lines.of([status(pid=7, message="x\n")])
    assert json.loads(line) == {
        "space": "lab",
        "name": "files",
        "kind": "member",
        "state": "running",
        "pid": 7,
        "restarts": 0,
        "joined": False,
        "message": "x\n",
    }
    assert [json.loads(line) for line in lines.of([status(pid=7)], open_proposals=1)] == [
        {"open_proposals": 1}
    ]


def test_durations_read_like_a_clock() -> None:
    assert [duration(seconds) for seconds in (-1, 5, 65, 3725)] == ["0:00", "0:05", "1:05", "1:02:05"]
