"""Words behind a command: tool arguments, capabilities, exit codes, and what a line of an envelope says."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from moot.cli import main
from moot.cli.client.operation_commands import GROUPS
from moot.cli.command_table import COMMANDS, RENAMED, SHORT_HELP, make_parser
from moot.cli.process.exit_codes import exit_code_of
from moot.cli.process.program import subcommands_of
from moot.errors import (
    CapabilityViolation,
    Expired,
    McpError,
    MootError,
    NotAllowed,
    Rejected,
    TimedOut,
    Unreachable,
    UsageError,
)
from moot.operations.operation import SlashParser, error_code, read_capability_text, read_tool_arguments
from moot.operations.operation_table import OPERATIONS
from moot.operations.proposal_operations import argument_lines
from moot.operations.text.envelope_view import lines_of
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.protocol.strict_json import encode
from tests.rows import for_each_row
from tests.waiting import HANG_SECONDS


def test_arguments_of_a_tool_are_text_json_or_one_object() -> None:
    assert read_tool_arguments([]) == {}
    assert read_tool_arguments(["a=1", "b:=1", "c:=[true]", "d=x=y", "e="]) == {
        "a": "1", "b": 1, "c": [True], "d": "x=y", "e": ""
    }  # fmt: skip
    assert read_tool_arguments(['{"a": {"b": null}}']) == {"a": {"b": None}}


@pytest.mark.parametrize("words", [["a"], ["=1"], [":=1"], ["a:={"], ["{"]])
def test_what_is_no_argument_is_told(words: list[str]) -> None:
    with pytest.raises(UsageError):
        read_tool_arguments(words)


def test_capabilities_have_a_short_form() -> None:
    assert read_capability_text("chat") == {"kind": "chat"}
    assert read_capability_text("mcp/request:tools/*") == {
        "kind": "mcp/request",
        "payload": {"method": "tools/*"},
    }
    assert read_capability_text("mcp/request:tools/call:a:b") == {
        "kind": "mcp/request",
        "payload": {"method": "tools/call", "params": {"name": "a:b"}},
    }
    assert read_capability_text('{"kind": "chat", "to": ["a"]}') == {"kind": "chat", "to": ["a"]}
    with pytest.raises(UsageError):
        read_capability_text(":x")


@for_each_row(
    ("fault", "code", "word"),
    [
        (CapabilityViolation("no"), 3, "capability_violation"),
        (NotAllowed("no"), 3, "not_allowed"),
        (Rejected("bob", "unsafe"), 3, "rejected"),
        (TimedOut("late"), 4, "timed_out"),
        (Expired("late"), 4, "expired"),
        (Unreachable("nobody"), 5, "unreachable"),
        (McpError(-32000, "busy"), 1, "mcp_error"),
        (UsageError("what"), 2, "usage_error"),
    ],
)
def test_every_failure_has_an_exit_code_and_a_word(fault: MootError, code: int, word: str) -> None:
    assert (exit_code_of(fault), error_code(fault)) == (code, word)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_operation_explains_itself_in_the_shell_and_behind_a_slash(
    operation: object, capsys: pytest.CaptureFixture[str]
) -> None:
    from moot.operations.operation import UserOperation

    assert isinstance(operation, UserOperation)
    assert f"/{operation.name}" in operation.slash_parser().format_help()
    if not operation.interactive_only:
        group = [name for name, operations in GROUPS.items() if operation.name in operations]
        assert bool(group) != (operation.name in COMMANDS)
        with pytest.raises(SystemExit, match="0"):
            main([*group, operation.name, "--help"])
        output = capsys.readouterr().out
        assert "--token-file" in output
        assert "--as NAME" in output


def test_a_mistake_behind_a_slash_says_how_it_is_used() -> None:
    parser = SlashParser(prog="/kick", add_help=False)
    parser.add_argument("member", metavar="MEMBER")
    with pytest.raises(UsageError, match=r"required: MEMBER\. usage: /kick MEMBER"):
        parser.parse_args([])


def envelope(kind: str, payload: Json, **more: Json) -> Envelope:
    fields = {
        "protocol": "mew/v0.4", "id": "e1234567890", "ts": "2026-01-31T12:00:00Z", "from": "bob",
        "kind": kind, "payload": payload, "correlation_id": [], "to": [],
    }  # fmt: skip
    return DIALECTS["mew"].decode(encode(fields | more))


@for_each_row(
    ("said", "words"),
    [
        (envelope("chat", {"text": "hi"}, to=["a", "b"]), "bob → a, b: hi"),
        (
            envelope("mcp/proposal", {"method": "tools/call", "params": {"name": "x"}}, to=["host"]),
            "bob proposes x on host  [e1234567]",
        ),
        (
            envelope("mcp/request", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, to=["host"]),
            "bob calls tools/list on host",
        ),
        (
            envelope("mcp/request", {"id": 1, "method": "tools/list"}, to=["h"], correlation_id=["p1"]),
            "bob approves p1: tools/list on h",
        ),
        (
            envelope("mcp/response", {"id": 1, "error": {"code": -1, "message": "no"}}, correlation_id=["r"]),
            "bob answers all: error -1: no",
        ),
        (
            envelope("mcp/response", {"id": 1, "result": {"isError": True, "content": []}}, to=["a"],
                     correlation_id=["r"]),
            'bob answers a: failed: {"isError": true, "content": []}',
        ),
        (
            envelope("mcp/response", {"id": 1, "error": {"code": -1, "message": "it ended",
                     "data": {"moot/outcome": "unknown"}}}, correlation_id=["r"]),
            "bob answers all: outcome unknown: it ended",
        ),
        (
            envelope("moot/outcome", {"proposal_id": "p1", "outcome": "unknown", "reason": "timed_out"}),
            "bob: the outcome of p1 is unknown: its host did not answer in time",
        ),
        (
            envelope("moot/settle", {"outcome": "done", "note": "seen"}, correlation_id=["p1"]),
            "bob settles p1 as done: seen",
        ),
        (envelope("mcp/reject", {"reason": "unsafe"}, correlation_id=["p1"]), "bob rejects p1: unsafe"),
        (envelope("reasoning/thought", {"message": "hm"}, context="c"), "bob thinks: hm"),
        (envelope("participant/pause", {"reason": "wait"}, to=["a"]), "bob pauses a: wait"),
        (envelope("participant/forget", {"n": 1}, to=["a"]), 'bob participant/forget to a {"n": 1}'),
        (envelope("acme/thing", {}), "bob acme/thing {}"),
    ],
)  # fmt: skip
def test_a_line_says_who_does_what(said: Envelope, words: str) -> None:
    assert [line[9:] for line in lines_of(said)] == [words]


def test_what_only_programs_care_for_is_shown_only_when_asked_for() -> None:
    progress = envelope("mcp/request", {"method": "notifications/progress", "params": {"progress": 1}})
    assert lines_of(progress) == []
    assert "notifications/progress" in lines_of(progress, verbose=True)[0]


def test_whatever_a_payload_holds_becomes_a_line() -> None:
    """Members of this space need not be sensible."""
    for payload in ({}, {"text": None}, {"params": 3}, {"result": None}, {"participant": 1, "event": []}):
        for kind in (
            "chat",
            "mcp/proposal",
            "mcp/response",
            "system/presence",
            "capability/grant",
            "moot/outcome",
            "moot/settle",
        ):
            sent = Envelope("mew", kind, "i", "nonsense", "bob", (), (), None, payload, b"{}")
            assert lines_of(sent)[0].startswith("--:--:--")


def test_arguments_are_shown_in_full_and_texts_keep_their_lines() -> None:
    assert argument_lines({"arguments": {"path": "a", "text": "1\n2", "n": [1, "é"]}}) == [
        "path: a",
        "text: 1",
        "      2",
        'n: [1, "é"]',
    ]
    assert argument_lines({"arguments": 3}) == []
    assert argument_lines(None) == []


def test_a_command_loads_what_it_needs_and_no_server() -> None:
    """A person who types `moot send` should not wait for a gateway to be loaded."""
    code = "import sys; from moot.cli import main\ntry: main(['send', '--help'])\nexcept SystemExit: pass\n"
    shown = "print([name for name in sys.modules if name.startswith('moot.')])"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code + shown], capture_output=True, text=True, check=True, timeout=HANG_SECONDS
    )
    loaded = done.stdout.splitlines()[-1]
    for heavy in ("moot.gateway", "moot.participant", "moot.conformance", "moot.mcp", "moot.space"):
        assert heavy not in loaded


def commands_below(
    parser: argparse.ArgumentParser, path: str = "moot"
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command and group with the words that call it."""
    for name, command in subcommands_of(parser).items():
        yield f"{path} {name}", command
        yield from commands_below(command, f"{path} {name}")


def test_the_short_help_lists_every_command_on_one_screen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert shown == SHORT_HELP
    # One line is the next prompt's.
    assert len(shown.splitlines()) < 24
    assert max(map(len, shown.splitlines())) <= 80
    assert {name for name in COMMANDS if not re.search(rf"\b{name}\b", shown)} == set()


def test_every_command_and_group_explains_itself_with_examples_of_its_own() -> None:
    for path, parser in commands_below(make_parser(COMMANDS)):
        help = parser.format_help()
        assert f"usage: {path}" in help
        assert f"  {path}" in help.partition("examples:\n")[2], path


def test_no_help_text_names_a_ruling() -> None:
    for path, parser in commands_below(make_parser(COMMANDS)):
        assert re.search(r"\bD-\d+", parser.format_help()) is None, path


def test_a_group_alone_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    for path, parser in commands_below(make_parser(COMMANDS)):
        if subcommands_of(parser):
            assert main(path.split()[1:]) == 0
            assert capsys.readouterr().out == parser.format_help()


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["grant", "agent", "chat"], "`moot grant` is now `moot member grant`"),
        (["trust"], "`moot trust` is now `moot rules`"),
        (["trust", "accept", "s-1"], "`moot trust` is now `moot rules`"),
        (["trust", "lift", "rule"], "`moot trust lift` is now `moot rules resume`"),
        (["approver", "--shadow"], "`moot approver` is now `moot rules run`"),
        (["propose", "files", "write_file"], "`moot propose` is now `moot call --propose`"),
    ],
)
def test_a_name_of_before_is_answered_with_the_new_one(
    typed: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(typed)
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"moot: {said}\n"


def test_every_new_name_of_an_old_command_exists() -> None:
    known = {path for path, _ in commands_below(make_parser(COMMANDS))}
    for old, new in RENAMED.items():
        assert f"moot {old}" not in known
        assert f"moot {new.removesuffix(' --propose')}" in known
