"""`moot journal` as a user types it."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import subprocess
from pathlib import Path

import pytest

from moot.cli import main
from moot.operations.text.terminal_escape import printable, printable_json
from moot.store.database import Database
from tests.store.crash_soak import ROOT
from tests.store.journals import (
    TriedJournal,
    edit_lines,
    envelope_record,
    folder_in,
    members,
    segments,
    write_now,
)
from tests.waiting import HANG_SECONDS
from tests.warm_start import warm_command

ATTACK = "\x1b[2J\x1b]0;owned\x07 \u202eevil\u202c \u2066x\u2069 \x9b31m \u200b \ud7ff \U000e0041"
RECORDS = [
    members({"t": 1_760_000_000.0, "in": "join", "session": "s1", "who": "agent", "out": "accepted"}),
    envelope_record("p1", "agent", t=1_760_000_001.5, kind="mcp/proposal", payload={"method": "tools/call"}),
    envelope_record(
        "f1", "alice", t=1_760_000_002.0, kind="mcp/request", correlation_id=["p1", "gone"], to=["files"]
    ),
    envelope_record("r1", "files", t=1_760_000_003.0, kind="mcp/response", correlation_id=["f1"]),
    envelope_record("e1", "agent", t=1_760_000_004.0, kind="mcp/request", out="capability_violation"),
    envelope_record("=1+1", "mallory", t=1_760_000_005.0, payload={"text": ATTACK, "long": "x" * 300}),
    members({"t": 1e30, "in": "admin", "who": "root", "by": "root"}),
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_now(folder_in(tmp_path), RECORDS)
    return tmp_path


def run(data: Path, capsys: pytest.CaptureFixture[str], action: str, *arguments: str, code: int = 0) -> str:
    assert main(["journal", action, "--data", str(data), *arguments]) == code
    captured = capsys.readouterr()
    return captured.out if code == 0 or captured.out else captured.err


def test_tail_shows_the_last_records_one_a_line(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    headings, *lines = run(data, capsys, "tail").splitlines()
    assert headings.split() == ["NUMBER", "TIME", "WHO", "KIND", "ID", "TO", "ABOUT", "OUTCOME", "CONTENT"]
    assert len(lines) == 7
    third = [
        "3",
        "2025-10-09T08:53:22.000Z",
        "alice",
        "mcp/request",
        "f1",
        "files",
        "p1,",
        "gone",
        "accepted",
    ]
    assert lines[2].split() == third
    assert "capability_violation" in lines[4]
    assert lines[5].endswith("…")
    assert '{"by":"root"}' in lines[6]
    # Columns stand in line.
    assert {line.index("2025-") for line in lines[:5]} == {headings.index("TIME")}
    last = run(data, capsys, "tail", "-n", "2").splitlines()
    assert [line.split()[0] for line in last] == ["NUMBER", "6", "7"]
    assert run(data, capsys, "tail", "-n", "0") == ""


def test_tail_as_json_is_what_was_journaled(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = [json.loads(line) for line in run(data, capsys, "tail", "--json").splitlines()]
    assert output == [json.loads(line) for line in segments(folder_in(data))[0].read_text().splitlines()]


def test_follow_prints_what_comes(data: Path) -> None:
    arguments = ["journal", "tail", "--data", str(data), "-n1", "--follow", "--json"]
    child = subprocess.Popen([*warm_command(), *arguments], stdout=subprocess.PIPE, cwd=ROOT)  # noqa: S603
    assert child.stdout is not None
    with child.stdout as answer:
        try:
            assert json.loads(answer.readline())["n"] == 7
            for id in ("new1", "new2"):
                write_now(folder_in(data), [envelope_record(id)], TriedJournal(segment_bytes=50))
                assert json.loads(answer.readline())["id"] == id
        finally:
            child.kill()
            child.wait()


def test_nothing_that_a_peer_wrote_reaches_the_terminal_as_a_command(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["tail"], ["tail", "--json"], ["show", "6"], ["show", "6", "--json"], ["search"]):
        output = run(data, capsys, arguments[0], *arguments[1:])
        for line in output.splitlines():
            assert line.isprintable(), arguments
        assert "\\u202e" in output or "…" in output


def test_what_is_harmless_is_shown_as_it_is() -> None:
    assert printable("Grüße, 世界\u3000ok\u00a0!") == "Grüße, 世界\u3000ok\u00a0!"
    assert printable("a\nb\x1b[m\u202e\U000e0041") == "a\\nb\\x1b[m\\u202e\\U000e0041"
    text = '{"a":"\U000e0041\x7f\u202e é"}'
    assert printable_json(text.encode()) == '{"a":"\\udb40\\udc41\\u007f\\u202e é"}'
    assert json.loads(printable_json(text.encode())) == json.loads(text)
    assert printable_json(b'{\t"a"\r:\n1}') == '{ "a" : 1}'


def test_show_tells_what_a_record_correlates_to_and_what_to_it(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = run(data, capsys, "show", "f1")
    assert '"session": "s1"' in output
    assert "correlates to: 2  " in output
    assert "correlates to: gone (not in this journal)" in output
    assert "correlated by: 4  " in output
    assert run(data, capsys, "show", "3") == output
    rows = [json.loads(line) for line in run(data, capsys, "show", "f1", "--json").splitlines()]
    assert [(name, row["n"]) for line in rows for name, row in line.items()] == [
        ("record", 3),
        ("correlates_to", 2),
        ("correlated_by", 4),
    ]


def test_show_shows_every_record_of_an_id(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_now(folder_in(data), [envelope_record("f1", "bob", out="duplicate_id"), envelope_record("2024")])
    output = run(data, capsys, "show", "f1")
    assert "duplicate_id" in output
    assert output.count('"session": "s1"') == 2
    assert '"n": 9' in run(data, capsys, "show", "2024")
    assert "no record 'nothing'" in run(data, capsys, "show", "nothing", code=2)


def test_the_beginning_of_an_id_is_enough_where_only_one_has_it(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_now(folder_in(data), [envelope_record("abcd-1", "ana"), envelope_record("abcd-2", "bob")])
    assert "abcd-2" in run(data, capsys, "show", "abcd-2")
    write_now(folder_in(data), [envelope_record("abce-3", "eve")])
    for beginning in ("abce", "abce-"):
        assert '"who": "eve"' in run(data, capsys, "show", beginning)
    assert "2 messages begin with abcd: type more" in run(data, capsys, "show", "abcd", code=2)
    assert "no record 'abc'" in run(data, capsys, "show", "abc", code=2)


def test_a_damaged_index_is_made_anew_or_says_that_it_may_be_deleted(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = run(data, capsys, "show", "f1")
    path = folder_in(data).parent / "index.db"
    whole = path.read_bytes()
    for start, end in ((100, len(whole)), (4096, len(whole))):
        path.write_bytes(whole[:start] + b"\xff" * (end - start))
        assert run(data, capsys, "show", "f1") == output
    # The pages in the middle hold records; nothing looks at them before they are needed.
    path.write_bytes(whole[: 3 * 4096] + b"\xff" * 3 * 4096 + whole[6 * 4096 :])
    assert "Delete it" in run(data, capsys, "show", "f1", code=2)
    path.unlink()
    assert run(data, capsys, "show", "f1") == output


def test_search_takes_all_its_conditions_together(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def found(*arguments: str) -> list[int]:
        lines = run(data, capsys, "search", "--json", *arguments).splitlines()
        return [json.loads(line)["n"] for line in lines]

    assert found() == [1, 2, 3, 4, 5, 6, 7]
    assert found("--kind", "mcp/*", "--from", "agent") == [2, 5]
    assert found("--outcome", "capability_violation") == [5]
    assert found("--id", "r1") == [4]
    assert found("--about", "f1") == [4]
    assert found("--text", "TOOLS/call") == [2]
    assert found("--since", "2025-10-09T08:53:22Z", "--until", "1760000003") == [3, 4]
    assert found("--since", "2025-10-09", "--until", "2025-10-10") == [1, 2, 3, 4, 5, 6]
    assert found("--since", "1h") == [7]
    assert "agent" in run(data, capsys, "search", "--kind", "join")


def test_a_time_that_is_none_is_a_mistake_in_the_call(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(data, capsys, "search", "--since", "yesterday")
    assert "2026-01-31" in capsys.readouterr().err


def test_export_writes_the_lines_as_they_are(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = data / "out.jsonl"
    assert "7 records" in run(data, capsys, "export", str(file))
    assert file.read_bytes() == segments(folder_in(data))[0].read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600
    assert "exists" in run(data, capsys, "export", "--jsonl", str(file), code=2)
    assert "cannot write" in run(data, capsys, "export", str(data / "no" / "folder"), code=2)


def test_export_as_a_table_runs_no_formula(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = data / "out.csv"
    run(data, capsys, "export", "--csv", str(file))
    rows = list(csv.DictReader(io.StringIO(file.read_text("utf-8"), newline="")))
    assert [row["number"] for row in rows] == [str(number) for number in range(1, 8)]
    assert rows[5]["id"] == "'=1+1"
    assert json.loads(rows[5]["payload"])["text"] == ATTACK
    assert (rows[2]["correlation_id"], rows[2]["to"], rows[2]["out"]) == ("p1 gone", "files", "accepted")


def test_export_to_the_standard_output_is_nothing_but_the_records(data: Path) -> None:
    command = [*warm_command(), "journal", "export", "--data", str(data), "-"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=HANG_SECONDS, cwd=ROOT)  # noqa: S603
    assert done.stdout == segments(folder_in(data))[0].read_bytes()


def test_verify_exits_with_1_and_names_the_place(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """D-85."""
    assert run(data, capsys, "verify") == "lab: 7 records, 1 to 7: the chain holds\n"
    path = segments(folder_in(data))[0]
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    assert "no whole record yet" in run(data, capsys, "verify")
    path.write_bytes(whole)
    edit_lines(path, lambda lines: [*lines[:2], *lines[3:]])
    output = run(data, capsys, "verify", code=1)
    assert "broken at 000000000001.jsonl line 3: removed: record 3 is missing" in output
    assert "before it hold 2 records, 1 to 2" in output


def test_verify_notices_that_the_end_was_cut_off_behind_a_snapshot(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def save() -> None:
        database = Database.open(data / "moot.sqlite")
        await database.save_snapshot("lab", 7, b"{}")
        await database.close()

    asyncio.run(save())
    assert "the chain holds" in run(data, capsys, "verify")
    edit_lines(segments(folder_in(data))[0], lambda lines: lines[:-1])
    assert "ends with record 6, but a snapshot covers record 7" in run(data, capsys, "verify", code=1)


def test_the_space_has_to_be_named_when_there_are_several(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_now(folder_in(data, "den"), [envelope_record("other")])
    assert "choose one with --space (den, lab)" in run(data, capsys, "tail", code=2)
    assert "other" in run(data, capsys, "tail", "--space", "den")
    assert "there is den, lab" in run(data, capsys, "tail", "--space", "no", code=2)
    assert run(data, capsys, "verify").count("the chain holds") == 2
    assert run(data, capsys, "verify", "--space", "den").count("the chain holds") == 1


def test_no_journal_says_where_it_looked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--data" in run(tmp_path, capsys, "tail", code=2)
    folder_in(tmp_path).mkdir(parents=True)
    assert run(tmp_path, capsys, "tail") == ""
    assert run(tmp_path, capsys, "verify") == "lab: 0 records: the chain holds\n"
