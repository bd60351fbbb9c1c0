"""Log lines: both formats, rotation, and what never gets into them."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from moot import logs
from moot.logs import JsonFormatter, escape, redact, set_up

log = logging.getLogger("moot.test")


@pytest.fixture(autouse=True)
def root_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    level = root.level
    yield
    if logs._installed is not None:
        root.removeHandler(logs._installed)
        logs._installed.close()
        logs._installed = None
    root.setLevel(level)


def lines_of(folder: Path, format: Literal["json", "text"], message: str, **options: Any) -> list[str]:
    """What one call of `log.error` leaves in a file."""
    file = folder / "moot.log"
    set_up("info", format, file)
    log.error(message, **options)
    return file.read_text("utf-8").splitlines()


def test_a_json_line_has_the_message_and_the_facts(tmp_path: Path) -> None:
    facts = {
        "participant": "alice",
        "bytes": 12,
        "slow": True,
        "nobody": None,
        "seconds": 0.5,
        "path": tmp_path,
    }
    (line,) = lines_of(tmp_path, "json", "joined", extra=facts)
    entry = json.loads(line)
    assert entry.pop("time").endswith("Z")
    assert entry == {
        "level": "error",
        "logger": "moot.test",
        "message": "joined",
        **facts,
        "path": str(tmp_path),
    }


def test_a_text_line_is_for_people(tmp_path: Path) -> None:
    (line,) = lines_of(
        tmp_path, "text", "joined", extra={"participant": "alice", "reason": 'a "b"', "n": None}
    )
    time, rest = line.split(" ", 1)
    assert len(time) == len("2026-11-15T03:49:34.123Z")
    assert rest == 'error   moot.test: joined participant=alice reason="a \\"b\\"" n=null'


def test_facts_do_not_replace_the_words_of_the_line(tmp_path: Path) -> None:
    (line,) = lines_of(tmp_path, "json", "joined", extra={"level": "x", "time": "y", "logger": "z"})
    entry = json.loads(line)
    assert (entry["level"], entry["level_"], entry["logger_"]) == ("error", "x", "z")


def test_every_json_line_is_json() -> None:
    odd = {"nan": float("nan"), "inf": float("inf"), "half": "\ud800", "set": {1}, "bytes_": b"\xff"}
    # Not logged: half a surrogate pair in a log record is too much for the test runner itself.
    line = JsonFormatter().format(logging.makeLogRecord({"msg": "odd\ud800\n", "levelname": "INFO"} | odd))

    def refuse(word: str) -> None:
        raise AssertionError(word)

    entry = json.loads(line, parse_constant=refuse)
    assert (entry["nan"], entry["inf"], entry["set"]) == ("nan", "inf", "{1}")


@pytest.mark.parametrize("format", ["json", "text"])
def test_what_a_peer_wrote_cannot_act_on_a_terminal_or_forge_a_line(
    tmp_path: Path, format: Literal["json", "text"]
) -> None:
    evil = "a\x1b[2J\r\nerror forged\x07\x9b31m\u202ereversed\u2028x"
    lines = lines_of(tmp_path, format, evil, extra={"participant": evil, evil: 1})
    assert len(lines) == 1
    assert lines[0].isprintable()


def test_a_traceback_is_shown_escaped_and_redacted(tmp_path: Path) -> None:
    token = secrets.token_urlsafe(32)
    for format in ("json", "text"):
        try:
            raise ValueError(f"\x1b[2J {token}")
        except ValueError:
            lines = lines_of(tmp_path, format, "failed", exc_info=True, stack_info=True)
        assert "ValueError" in "".join(lines)
        assert token not in "".join(lines)
        assert all(line.isprintable() for line in lines)
    assert all(line.startswith("    ") for line in lines[2:])


TOKEN = "pV9x-Q2mLkT_81bZcYwHnRrEoSdUaGfJ5iKtXvM3q0s"


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {TOKEN}",
        "authorization: bearer short",
        "authorization: Basic c2hvcnQ6c2hvcnQ=",
        f"GET /ws?space=lab&token={TOKEN} HTTP/1.1",
        "GET /ws?token=short&space=lab",
        "{'token': 'short', 'id': 3}",
        '{"access_token": "short"}',
        "password=short",
        "client_secret: short",
        "set-cookie: short",
        f"joined {TOKEN}",
        f"({TOKEN})",
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhIn0.short",
    ],
)
def test_what_looks_like_a_token_is_blotted_out(text: str) -> None:
    shown = redact(text)
    assert TOKEN not in shown
    assert "[redacted]" in shown
    assert "short" not in shown
    assert redact(shown) == shown


def test_every_token_that_we_make_is_blotted_out() -> None:
    for _ in range(2_000):
        assert redact(f"x {secrets.token_urlsafe(32)} y") == "x [redacted] y"


@pytest.mark.parametrize(
    "text",
    [
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "0f8fad5b-d9cb-469f-a165-70867728950e",
        "participant=alice kind=mcp/request",
        "stream-0f8fad5b-d9cb-469f-a165-70867728950e",
        "no token was given",
    ],
)
def test_ids_and_hashes_are_left_alone(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("format", ["json", "text"])
def test_tokens_are_blotted_out_of_messages_arguments_and_facts(
    tmp_path: Path, format: Literal["json", "text"]
) -> None:
    file = tmp_path / "moot.log"
    set_up("info", format, file)
    log.info("header %s", f"Bearer {TOKEN}")
    facts = {"token": "short", "access_token": "short", "query": f"?token={TOKEN}", "headers": {"a": TOKEN}}
    log.info("x", extra=facts | {"password": ["short"]})
    text = file.read_text("utf-8")
    assert TOKEN not in text
    assert "short" not in text
    assert text.count("[redacted]") == 6


def test_a_long_fact_is_cut_after_blotting(tmp_path: Path) -> None:
    (line,) = lines_of(tmp_path, "json", "x", extra={"said": "n " * 500 + TOKEN + " n" * 500})
    shown = json.loads(line)["said"]
    assert len(shown) == logs.MAX_FIELD_CHARS + 1
    assert TOKEN[:8] not in shown


def test_escaping_leaves_ordinary_text_alone() -> None:
    assert escape("größer → 3") == "größer → 3"
    assert escape("a\tb\x00\ud800") == r"a\tb\x00\ud800"


def test_the_level_decides_what_is_told(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "moot.log"
    set_up("warning", "text", file)
    log.info("quiet")
    log.warning("loud")
    assert [line.rpartition(" ")[2] for line in file.read_text("utf-8").splitlines()] == ["loud"]


def test_files_rotate_by_size_and_old_ones_go(tmp_path: Path) -> None:
    file = tmp_path / "moot.log"
    set_up("info", "text", file, file_bytes=300, max_old_files=2)
    for number in range(40):
        log.info("line", extra={"number": number})
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["moot.log", "moot.log.1", "moot.log.2"]
    assert all(path.stat().st_size <= 300 for path in tmp_path.iterdir())
    assert file.read_text("utf-8").splitlines()[-1].endswith("number=39")


def test_setting_up_again_replaces_the_place_and_stderr_is_the_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up("info", "text", tmp_path / "moot.log")
    set_up("info", "text")
    log.info("once")
    assert (tmp_path / "moot.log").read_text("utf-8") == ""
    assert capsys.readouterr().err.count("once") == 1
