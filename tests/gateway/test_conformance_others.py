"""`moot conformance URL` on a gateway that shares no code with ours: its real faults are named, no others."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from moot.cli import main
from moot.conformance.manifest import load_manifest
from moot.conformance.remote_runner import why_not
from moot.conformance.vectors import Vector
from moot.protocol.operation import Json
from tests.conformance_vectors import all_vectors
from tests.gateway.foreign_gateway import FAULTS, running_rudder


def report(
    *faults: str,
    vectors: Iterable[tuple[str, Vector]],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> list[Json]:
    token = folder / "root.token"
    token.write_text("t-root")
    token.chmod(0o600)
    chosen = list(vectors)
    monkeypatch.setattr("moot.cli.conformance.load_vectors", lambda: chosen)
    with running_rudder(*faults) as url:
        assert main(["conformance", url, "--token-file", str(token), "--space", "deck", "--json"]) in (0, 1)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == len(chosen)
    return lines


def about(*rows: str) -> Iterable[tuple[str, Vector]]:
    """The vectors that can be run and are about one of these rows, or rows that start so."""
    for source, vector in all_vectors():
        if why_not(vector) is None and any(row.startswith(rows) for row in vector.rows):
            yield source, vector


def broken(lines: Iterable[Json]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in lines:
        for row in line["breaks"]:
            found.setdefault(row, []).append(line["message"])
    return found


def test_other_codes_names_and_ids_than_ours_break_no_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where MEW names no code, any refusal that nobody else hears is one; a part of the vectors is asked."""
    levels = {id: row.level for id, row in load_manifest().items()}
    must = [
        (source, each)
        for source, each in about("MEW-")
        if any(levels[row] in ("MUST", "SHOULD") or row.startswith("MEW-3.8.2") for row in each.rows)
    ]
    others = [pair for pair in about("MEW-") if pair not in must]
    vectors = [*must, *others[::4]]
    lines = report(vectors=vectors, folder=tmp_path, capsys=capsys, monkeypatch=monkeypatch)
    assert broken(lines) == {}
    assert all(line["passed"] is not False for line in lines)
    passed = {row for line in lines if line["passed"] for row in line["rows"]}
    # What names the codes of MEW is shown, and so is what only asks for a refusal.
    assert {"MEW-3.8.2-2", "MEW-3.10.1-15", "MEW-4.1-1", "MEW-4.1-10", "MEW-3-1", "MEW-3-2"} <= passed
    # And what ours does beyond MEW says so, and why.
    silent = [line["message"] for line in lines if line["passed"] is None]
    assert any("MEW does not say that this is refused" in message for message in silent)
    assert any("is a ruling of ours" in message for message in silent)


@pytest.mark.parametrize(
    ("fault", "asked", "rows"),
    [
        (
            "believes_names",
            ("MEW-4.1-1", "MEW-3.4"),
            {"MEW-4.1-1", "MEW-4.1-2", "MEW-7.1-1", "MEW-7.2-3"},
        ),
        (
            "relays_system",
            ("MEW-4.1-", "MEW-3.7"),
            {"MEW-4.1-8", "MEW-4.1-10", "MEW-7.1-3", "MEW-7.2-4", "MEW-8.1-12"},
        ),
        (
            "any_version",
            ("MEW-3-2", "MEW-6.1", "MEW-3.4"),
            {"MEW-3-2", "MEW-6.1-1", "MEW-6.1-2", "MEW-6.3-1", "MEW-6.4-1"},
        ),
        ("shows_tokens", ("MEW-3.6.5", "MEW-3.6.6", "MEW-3-23", "MEW-3-24"), {"MEW-3.6.6-6"}),
        (
            "keeps_closed_streams",
            ("MEW-3.10.4", "MEW-3.8.1"),
            {"MEW-3.10.4-1", "MEW-3.10.4-3", "MEW-3.10.4-5"},
        ),
        ("unknown_targets", ("MEW-3.10.1",), {"MEW-3.10.1-15"}),
        ("grants_anything", ("MEW-3.6.1-", "MEW-3.6.8"), {"MEW-3.6.8-2"}),
        ("ignores_kicks", ("MEW-3.6.7", "MEW-3-25"), {"MEW-3.6.7-1"}),
        ("forgets_rights", ("MEW-3.8.1", "MEW-3.7"), {"MEW-5.2-4"}),
        ("leaks_targeted", ("MEW-3.10.3", "MEW-3.10.1-7"), {"MEW-3.10.3-4"}),
        ("rejects_quietly", ("MEW-4.2", "MEW-4.1-6"), {"MEW-4.2-4"}),
    ],
)
def test_a_real_fault_is_named_by_its_rows_and_no_other_is(
    fault: str,
    asked: tuple[str, ...],
    rows: set[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = report(fault, vectors=about(*asked), folder=tmp_path, capsys=capsys, monkeypatch=monkeypatch)
    found = broken(lines)
    assert set(found) == rows, json.dumps(found, indent=1)
    assert any(line["passed"] for line in lines)


def test_every_fault_is_tried() -> None:
    marks = test_a_real_fault_is_named_by_its_rows_and_no_other_is.pytestmark  # type: ignore[attr-defined]
    assert {case[0] for case in marks[0].args[1]} == FAULTS
