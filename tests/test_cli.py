"""The `moot` command as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from moot.cli import main
from tests.waiting import HANG_SECONDS


def test_demo_tells_the_whole_story(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    output = capsys.readouterr().out
    assert "no sockets" in output
    for fact in (
        "capability_violation",
        "mcp/proposal",
        "proposal_mismatch",
        "written",
        "participant_paused",
    ):
        assert fact in output


@pytest.mark.requirement("MEW-0-2")
def test_version_names_the_protocols(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert "mew/v0.4" in capsys.readouterr().out


@pytest.mark.requirement("MEW-6.1-3", "MEW-6.3-2", "MEW-6.5-1")
def test_help_says_what_the_protocol_is_and_that_it_is_experimental(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    about = capsys.readouterr().out
    assert "Multi-Entity Workspace Protocol" in about
    assert "experimental" in about


def test_conformance_reports_by_level(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "--only", "MEW-3.6.1"]) == 0
    output = capsys.readouterr().out
    assert "MUST" in output
    assert ", 0 failed" in output


def test_conformance_as_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "--only", "MEW-3.7-1", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines
    assert all(line["passed"] and "MEW-3.7-1" in line["rows"] for line in lines)


def test_a_wrong_call_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["dance"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "moot: there is no command 'dance'; `moot` lists the commands\n"


def test_the_command_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "moot.cli", "--version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_SECONDS,
    )
    assert done.stdout.startswith("moot ")


def test_an_encoding_that_lacks_a_character_gets_an_escape() -> None:
    """An old terminal is no reason to fail."""
    done = subprocess.run(
        [sys.executable, "-m", "moot.cli", "demo"],
        capture_output=True,
        text=True,
        encoding="latin-1",
        check=False,
        timeout=HANG_SECONDS,
        env=os.environ | {"PYTHONIOENCODING": "latin-1"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u25c0 is what a member receives" in done.stdout
