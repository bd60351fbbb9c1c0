"""Typing errors in a configuration: what was probably meant is offered."""

from __future__ import annotations

from pathlib import Path

import pytest

from moot.config import check
from moot.errors import UsageError
from tests.config.files import NO_ENVIRONMENT, loaded, written

ONE = "participants: {you: {capabilities: [chat]}}"


def test_a_negation_of_nothing_is_warned_about(tmp_path: Path) -> None:
    rights = (
        '["!", {"kind": "mcp/request", "payload": {"params": {"name": ["x", "! y"]}}}, {"kind": "!chat"}]'
    )
    notes = loaded(tmp_path, f"spaces: {{lab: {{participants: {{you: {{capabilities: {rights}}}}}}}}}").notes
    assert [note.split(" matches nothing")[0] for note in notes if "matches nothing" in note] == [
        "space lab: you: '!'",
        "space lab: you: '! y'",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"space:\n  lab: {{{ONE}}}", "space: did you mean spaces? In a moot.yaml, spaces.lab is a space"),
        (f"space: {{id: lab, {ONE}}}", "participants: stands beside space:, not under it"),
        (f"gatway: {{port: 1}}\nspaces: {{lab: {{{ONE}}}}}", "gatway: unknown key; did you mean gateway?"),
        (f"Spaces: {{lab: {{{ONE}}}}}\ngateway: {{}}", "Spaces: unknown key; did you mean spaces?"),
        (
            f"gateway: {{prot: 1}}\nspaces: {{lab: {{{ONE}}}}}",
            "gateway.prot: unknown key; did you mean port?",
        ),
        ("spaces: {lab: {participant: {}}}", "lab.participant: unknown key; did you mean participants?"),
        (f"spaces: {{lab: {{Access: public, {ONE}}}}}", "lab.Access: unknown key; did you mean access?"),
        (
            f"spaces: {{lab: {{limits: {{max_byte: 1}}, {ONE}}}}}",
            "max_byte: unknown limit; did you mean max_bytes?",
        ),
        (
            f"spaces: {{lab: {{separation: true, {ONE}}}}}",
            "lab.separation: unknown key; did you mean separation_of_duties?",
        ),
        (
            f"spaces: {{lab: {{quorum: [{{approval_needed: 2}}], {ONE}}}}}",
            "quorum[0].approval_needed: unknown key; did you mean approvals_needed?",
        ),
        (f"spaces: {{lab: {{quorum: [{{}}], {ONE}}}}}", "quorum[0].approvals_needed: is missing"),
        ("spaces:\n\tlab: {}", "line 2, column 1: not valid YAML: it is indented with a tab; use spaces"),
        ("spaces: {lab: [x}", "did not find expected ',' or ']'"),
        ("spaces: lab", "spaces: must be a mapping (lines of `name: value`), not text"),
        ("- spaces", "the file: must be a mapping (lines of `name: value`), not a list"),
    ],
)
def test_a_typing_error_is_told_with_what_was_meant(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as fault:
        loaded(tmp_path, text)
    assert said in str(fault.value)


def test_a_space_yaml_without_participants_is_one_all_the_same(tmp_path: Path) -> None:
    """D-14: unknown keys are noted; only what looks like a moot.yaml is taken for one."""
    configuration = loaded(tmp_path, "space: {id: lab, name: A lab, theme: {colour: red}}\nparticipant: {}")
    assert list(configuration.spaces) == ["lab"]
    assert "participant: not known here, ignored; did you mean participants?" in configuration.notes


def test_a_folder_in_the_place_of_a_configuration_names_the_file_in_it(tmp_path: Path) -> None:
    written(tmp_path, f"spaces: {{lab: {{{ONE}}}}}")
    with pytest.raises(UsageError, match=r"is a folder; there is .*moot\.yaml"):
        check(tmp_path, environ=NO_ENVIRONMENT)


@pytest.mark.parametrize(
    ("capability", "word", "meant"),
    [
        ("chatt", "chatt", "chat"),
        ("Chat", "Chat", "chat"),
        ("mcp/requests", "mcp/requests", "mcp/request"),
        ("mpc/*", "mpc/*", "mcp/*"),
        ("reasoning", "reasoning", "reasoning/*"),
        ("trust/acept", "trust/acept", "trust/accept"),
        ("{kind: [chat, mcp/propsal]}", "mcp/propsal", "mcp/proposal"),
        ("'mcp/request:tool/call'", "tool/call", "tools/call"),
        ("{kind: mcp/request, payload: {method: tools/cal}}", "tools/cal", "tools/call"),
    ],
)
def test_a_capability_that_is_nearly_a_known_one_is_worth_a_look(
    capability: str, word: str, meant: str, tmp_path: Path
) -> None:
    """A warning and no more: kinds of one's own are allowed (D-08)."""
    path = written(tmp_path, f"spaces: {{lab: {{participants: {{you: {{capabilities: [{capability}]}}}}}}}}")
    answer = f"note: space lab: you: no known kind or method is called '{word}'; did you mean {meant}?"
    assert [line for line in check(path, environ=NO_ENVIRONMENT) if line.startswith(answer)]


@pytest.mark.parametrize(
    "capability",
    [
        "chat",
        "'*'",
        "mcp/*",
        "'chat/*'",
        "acme/thing",
        "'!chat'",
        "trust/accept",
        "moot/approve",
        "'/ch.t+/'",
        "'mcp/request:acme/run'",
        "'mcp/request:tools/*'",
        "{kind: mcp/request, payload: {method: '*/list'}}",
        "mcp.request.tools/call",
        "{kind: acme/request, payload: {method: tool/call}}",
    ],
)
def test_known_kinds_patterns_and_kinds_of_ones_own_are_not(capability: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"spaces: {{lab: {{participants: {{you: {{capabilities: [{capability}]}}}}}}}}")
    assert not [line for line in check(path, environ=NO_ENVIRONMENT) if "did you mean" in line]


@pytest.mark.parametrize("capabilities", ["[*]", "*", "[chat, {kind: *}]", "[*/list]"])
def test_a_star_without_quotes_says_what_to_write(capabilities: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"spaces: {{lab: {{participants: {{you: {{capabilities: {capabilities}}}}}}}}}")
    with pytest.raises(UsageError, match=r'not valid YAML: a \* has to stand in quotes: write "\*"'):
        check(path, environ=NO_ENVIRONMENT)


def test_the_name_of_a_tool_is_no_capability(tmp_path: Path) -> None:
    path = written(tmp_path, "spaces: {lab: {participants: {you: {capabilities: [write_file]}}}}")
    (said,) = [line for line in check(path, environ=NO_ENVIRONMENT) if "write_file" in line]
    assert "so this allows no call" in said
    assert said.endswith("{kind: mcp/request, payload: {method: tools/call, params: {name: write_file}}}")


def test_rights_of_guests_of_tokens_and_of_the_invited_are_looked_at_too(tmp_path: Path) -> None:
    text = """
    spaces:
      lab:
        access: public
        anonymous: [chatt]
        invite_baseline: [mcp/propsal]
        participants:
          you: {capabilities: [chat], tokens: [{token: abc, capabilities: [chaat]}]}
    """
    notes = [note for note in loaded(tmp_path, text).notes if "did you mean" in note]
    assert [note.split(":")[1] for note in notes] == [" guests", " invite_baseline", " a token of you"]
