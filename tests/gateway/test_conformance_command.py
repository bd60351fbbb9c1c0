"""`moot conformance URL`: any gateway, one token; here our own, as the process that `moot serve` starts."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from moot.cli import main
from moot.conformance.blocking_client import GatewayAddress
from moot.conformance.live_driver import LiveDriver
from moot.conformance.manifest import RequirementRow
from moot.conformance.pure_driver import PureDriver
from moot.conformance.remote_runner import refreshed, why_not
from moot.conformance.row_verdicts import VectorOutcome, by_row, count_levels
from moot.conformance.runner import run_vector
from moot.conformance.vectors import Vector
from moot.protocol.operation import Json
from tests.conformance_vectors import all_vectors
from tests.gateway.served_spaces import Served, runnable, serve_spaces


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve_spaces(tmp_path_factory.mktemp("served")) as found:
        yield found


def test_our_own_gateway_passes_what_can_be_run_by_inviting(
    served: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every eighth vector, and four of those that need more; all of them are for `make soak`."""
    chosen = [(source, each) for source, each in all_vectors() if why_not(each) is None][::8]
    own_dialects = "needs a space with its own dialects"
    others = [(source, each) for source, each in all_vectors() if why_not(each) == own_dialects][:4]
    monkeypatch.setattr("moot.cli.conformance.load_vectors", lambda: [*chosen, *others])
    assert served.run() == 0
    output = capsys.readouterr().out
    assert output.endswith(f"vectors: {len(chosen)} passed, 0 failed, {len(others)} not runnable\n")
    assert len(chosen) >= 35
    headings = re.findall(r"^(\w+): (\d+) passed, (\d+) failed, (\d+) not runnable$", output, re.MULTILINE)
    assert [heading[0] for heading in headings] == ["MUST", "SHOULD", "MAY", "implied", "vectors"]
    assert all(int(passed) and failed == "0" for _, passed, failed, _ in headings)
    assert re.search(rf"^\S+ +not runnable +\S+ .*\n +{own_dialects}$", output, re.MULTILINE)


def test_a_departure_that_is_no_news_is_not_waited_for(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two windows, and a post without a socket: nobody is to be told, so nobody says when."""
    names = (
        "a second window of the same member is welcomed but is no news, nor is closing one of two",
        "a post without a socket is nobody's arrival",
    )
    chosen = [(source, each) for source, each in all_vectors() if each.name in names]
    monkeypatch.setattr("moot.cli.conformance.load_vectors", lambda: chosen)
    slept: list[float] = []
    clock = SimpleNamespace(sleep=slept.append, monotonic=lambda: sum(slept))
    monkeypatch.setattr("moot.conformance.live_driver.time", clock)
    assert served.run() == 0
    assert 0 < sum(slept) < 2.0


def test_a_space_can_be_asked_again_and_by_name(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """Names and ids are fresh each time, and whoever was invited is removed again."""
    for _ in range(2):
        assert served.run("--only", "MEW-3.6.7", "--json", "--space", "default") == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert any(line["passed"] for line in lines)
        assert all(line["passed"] is not False for line in lines)
        assert all(line["message"] for line in lines if line["passed"] is None)


def test_a_space_with_others_in_it_is_left_alone(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    guest = LiveDriver(GatewayAddress(served.url), {"guest": "t-guest"}, space="busy")
    guest.join("guest", {})
    assert served.run("--space", "busy") == 2
    assert "guest is in this space" in capsys.readouterr().err
    guest.close()


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--space", "nowhere"], 5, "does not let us in"),
        (["--token-file", "{wrong}"], 5, "does not let us in"),
        (["--token-file", "{empty}"], 2, "must hold one token"),
        (["--token-file", "{missing}"], 2, "no token can be read"),
    ],
)
def test_what_keeps_a_run_from_starting_is_said(
    served: Served,
    options: list[str],
    code: int,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = {name: tmp_path / name for name in ("wrong", "empty", "missing")}
    files["wrong"].write_text("t-nobody")
    files["empty"].write_text("\n")
    for name in ("wrong", "empty"):
        files[name].chmod(0o600)
    assert served.run(*(option.format(**files) for option in options)) == code
    assert words in capsys.readouterr().err


def test_a_run_that_shows_nothing_is_no_success(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    assert served.run("--only", "M3P-1") == 1
    assert "nothing was run" in capsys.readouterr().out


def test_a_token_that_may_not_invite_runs_nothing(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "guest.token"
    token.write_text("t-guest")
    token.chmod(0o600)
    assert served.run("--space", "busy", "--only", "MEW-4.1-1", "--token-file", str(token)) == 1
    output = capsys.readouterr().out
    assert "could not be invited" in output
    assert "capability_violation" in output
    assert "nothing was run" in output


def test_nobody_listening_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = tmp_path / "token"
    token.write_text("t")
    token.chmod(0o600)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        assert main(["conformance", url, "--token-file", str(token)]) == 5
    assert "connection refused. No gateway runs there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["http://localhost:1"], "--token-file FILE is missing"),
        (["--space", "lab"], "go with the URL"),
        (["gopher://localhost", "--token-file", __file__], "no address of a gateway"),
        (["http://localhost:port", "--token-file", __file__], "no address of a gateway"),
        (["http://[::1", "--token-file", __file__], "no address of a gateway"),
        (["http://localhost/a b", "--token-file", __file__], "no address of a gateway"),
    ],
)
def test_a_call_that_cannot_work_is_explained(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("t")
    token.chmod(0o600)
    assert main(["conformance", *(str(token) if each == __file__ else each for each in arguments)]) == 2
    assert words in capsys.readouterr().err


def test_a_vector_with_other_names_and_ids_tells_the_same_story() -> None:
    for vector in runnable():
        story = refreshed(vector, "-7f")
        run_vector(story, PureDriver(story.space))
        assert all(name.endswith("-7f") for name in story.space["participants"])
        ids = {step.send["id"] for step in story.steps if step.send and isinstance(step.send.get("id"), str)}
        assert all(id.endswith("-7f") for id in ids if id)


@pytest.mark.parametrize(
    ("space", "join", "reason"),
    [
        ({"participants": {"a": []}, "limits": {}}, None, "needs a space with its own limits"),
        ({"participants": {"a": {"exclusive": True}}}, None, "needs a participant with exclusive"),
        ({"participants": {"a": ["mcp/request:tools/*"]}}, None, "notation of another dialect"),
        ({"participants": {"a": []}}, [{"a": {"dialect": "m3p"}}], "needs members that speak m3p"),
    ],
)
def test_what_inviting_cannot_bring_about_is_not_run(space: Json, join: Json, reason: str) -> None:
    found = why_not(Vector("x", [], [], space, join))
    assert found is not None
    assert reason in found


def test_a_row_has_failed_if_one_of_its_vectors_has() -> None:
    rows = {
        id: RequirementRow(level=level, who=["gateway"], room="space", words=f"words of {id}")
        for id, level in (("A", "MUST"), ("B", "MUST"), ("C", "MAY"), ("D", "MAY"), ("E", "MAY"))
    }
    outcomes = [
        VectorOutcome("file", Vector("one", ["A", "B"], []), "passed"),
        VectorOutcome("file", Vector("two", ["A"], []), "failed", "two: step 1: silence"),
        VectorOutcome("file", Vector("three", ["B", "C"], []), "not runnable", "needs a clock"),
        VectorOutcome("file", Vector("four", ["B", "D"], []), "failed", "four: step 2: a stream", ("E",)),
    ]
    verdicts = by_row(outcomes, rows)
    assert [(each.id, each.verdict, each.why) for each in verdicts] == [
        ("A", "failed", ("two: step 1: silence",)),
        ("B", "passed", ()),
        ("C", "not runnable", ("needs a clock",)),
        # What a story only uses is blamed, and of its own rows nothing is known.
        ("D", "not runnable", ("needs E: four: step 2: a stream",)),
        ("E", "failed", ("four: step 2: a stream",)),
    ]
    assert list(count_levels(verdicts)) == [
        "MUST: 1 passed, 1 failed, 0 not runnable",
        "MAY: 0 passed, 1 failed, 2 not runnable",
    ]
