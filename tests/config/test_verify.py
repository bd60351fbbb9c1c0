"""`moot verify`: for every row that is checked, a configuration that meets it and one that does not."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from moot.cli import main
from moot.config import load
from moot.operations.aisvs.deployment import Deployment, Verdict
from moot.operations.aisvs.rows import ROWS, verify
from moot.trust.rules.rule_yaml import read_rules
from tests.rows import for_each_row

CALL = {"kind": "mcp/request", "payload": {"method": "tools/call"}}
BOUND = {
    "kind": "mcp/request",
    "payload": {"method": "tools/call", "params": {"name": "a", "arguments": {"x": 1}}},
}
APPROVE = "rules:\n  - {name: reads, decision: approve, tool: read_file%s}\n"
FREE = {"participants": {"you": {"capabilities": ["*"]}, "agent": {"capabilities": [CALL]}}}
SERVER = {"command": "/usr/bin/notes"}
ISSUER = {
    "issuer": "https://id.example.org",
    "audience": "moot",
    "people": [{"match": {"sub": "a"}, "participant": "you", "spaces": ["lab"]}],
}


def space(**more: Any) -> dict[str, Any]:
    return {"spaces": {"lab": {"participants": {"you": {"capabilities": ["*"]}, "agent": {}}} | more}}


def gateway(**more: Any) -> dict[str, Any]:
    return space() | {"gateway": more}


def server(**more: Any) -> dict[str, Any]:
    return space(mcp_servers={"notes": SERVER | more})


def remote(**more: Any) -> dict[str, Any]:
    return space(mcp_servers={"notes": {"url": "https://mcp.example.org/mcp"} | more})


PASSKEYS = {"required": [{"tool": "*"}]}
FINAL = {"required": [{"tool": "*", "undo": "final"}]}
EFFECTS = {"payment": {"tool": "pay", "undo": "final"}}
BUDGET = {"calls": {"tool": "*", "at_most": 5}}
PLAIN = space()
REVIEW = {"participants": {"you": {"capabilities": ["*"]}, "r": {"command": "moot", "args": ["review"]}}}

# Row → what meets it, and what does not.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "9.1.1": (server(box="on"), server()),
    "9.1.2": (space(budgets=BUDGET), PLAIN),
    "9.1.3": (PLAIN, space(participants={"agent": {"capabilities": ["chat"]}})),
    "9.2.1": (PLAIN, space(**FREE)),
    "9.2.3": (space(effects=EFFECTS), PLAIN),
    "9.2.4": (space(effects=EFFECTS, passkeys=FINAL), space(passkeys=FINAL)),
    "9.2.5": (PLAIN, space(participants={"agent": {"capabilities": ["capability/grant"]}})),
    "9.2.6": (space(**REVIEW), PLAIN),
    "9.2.8": (space(passkeys=PASSKEYS), PLAIN),
    "9.2.9": (PLAIN, space(participants={"you": {"capabilities": ["*"], "tokens": ["a" * 43]}})),
    "9.3.1": (server(box="on"), server(box="off")),
    "9.3.3": (server(box="on"), server()),
    "9.4.1": (PLAIN, space(access="public", anonymous=[{"kind": "chat"}])),
    "9.4.2": (PLAIN, gateway(journal={"log": False})),
    "9.4.3": (PLAIN, space(participants={"you": {"capabilities": ["*"], "tokens": ["a" * 43]}})),
    "9.4.4": (PLAIN, gateway(journal={"mode": "off"})),
    "9.5.1": (PLAIN, space(**FREE)),
    "9.5.2": (remote(credentials="requester"), remote()),
    "9.5.4": (server(env={"LANG": "C"}), server(env={"API_KEY": "x"})),
    "9.5.5": (PLAIN, space(delegation="unrestricted")),
    "9.6.1": (PLAIN, space(participants={"agent": {"capabilities": ["chat"]}})),
    "9.6.2": (PLAIN, space(limits={"proposal_seconds": 30 * 86_400})),
    "9.6.3": (gateway(admin_tokens={"root": {"token": "a" * 43}}), PLAIN),
    "10.1.1": (server(), server(command="npx", args=["-y", "notes"])),
    "10.1.2": (PLAIN, space(access="public", anonymous=[])),
    "10.1.3": (server(box="on"), server()),
    "10.2.1": (PLAIN, gateway(allow_query_token=True)),
    "10.2.2": (gateway(oidc=[ISSUER]), gateway(oidc=[ISSUER | {"accept_id_tokens": True}])),
    "10.2.5": (space(participants={"agent": {"capabilities": [BOUND]}}), space(**FREE)),
    "10.3.1": (PLAIN, gateway(host="192.0.2.1")),
    "10.3.3": (PLAIN, gateway(allowed_hosts=["*"])),
    "10.4.5": (PLAIN, space(limits={"max_bytes": 32 << 20})),
    "10.4.8": (server(), server(pin=False)),
}


def verdicts(
    folder: Path, document: dict[str, Any], rules: str = "", now: float | None = None
) -> dict[str, Verdict]:
    file = folder / "moot.yaml"
    file.write_text(yaml.safe_dump(document))
    file.chmod(0o644)
    configuration = load(file, environ={}, data=folder / "data", dry=True)
    deployment = Deployment(
        configuration, file, read_rules(rules) if rules else (), time.time() if now is None else now
    )
    return {row.id: verdict for row, verdict in verify(deployment)}


@for_each_row("row", sorted(CASES))
def test_a_checked_row_is_met_by_one_configuration_and_missed_by_another(row: str, tmp_path: Path) -> None:
    good, bad = CASES[row]
    assert verdicts(tmp_path, good)[row].status == "met"
    missed = verdicts(tmp_path, bad)[row]
    assert (missed.status, bool(missed.change)) == ("not_met", True)


def test_rules_that_approve_ask_about_values_of_others_or_the_row_is_missed(tmp_path: Path) -> None:
    assert verdicts(tmp_path, PLAIN)["9.3.5"].status == "not_applicable"
    assert verdicts(tmp_path, PLAIN, APPROVE % ", ask: when_untrusted")["9.3.5"].status == "met"
    assert verdicts(tmp_path, PLAIN, APPROVE % "")["9.3.5"].status == "not_met"


def test_every_row_of_both_chapters_is_there_once_and_every_check_can_fail() -> None:
    counts = {
        "9.1": 3,
        "9.2": 10,
        "9.3": 8,
        "9.4": 4,
        "9.5": 6,
        "9.6": 3,
        "10.1": 3,
        "10.2": 7,
        "10.3": 5,
        "10.4": 8,
    }
    wanted = [f"{part}.{number}" for part, most in counts.items() for number in range(1, most + 1)]
    assert [row.id for row in ROWS] == wanted
    assert {row.id for row in ROWS if not isinstance(row.check, Verdict)} == {*CASES, "9.3.5"}
    # What no configuration can change never counts as met.
    assert {row.check.status for row in ROWS if isinstance(row.check, Verdict)} == {"not_met", "not_checked"}


def test_tokens_that_moot_made_stand_in_no_configuration(tmp_path: Path) -> None:
    file = tmp_path / "moot.yaml"
    file.write_text(yaml.safe_dump(PLAIN))
    load(file, environ={}, data=tmp_path / "data")
    assert verdicts(tmp_path, PLAIN)["9.2.9"].status == "met"


def test_a_token_in_a_file_gets_old(tmp_path: Path) -> None:
    file = tmp_path / "moot.yaml"
    file.write_text(yaml.safe_dump(PLAIN))
    load(file, environ={}, data=tmp_path / "data")
    month = 30 * 86_400
    for months, status in ((1, "met"), (4, "not_met")):
        later = verdicts(tmp_path, PLAIN, now=time.time() + months * month)
        assert later["9.4.3"].status == status


def test_the_command_says_it_in_words_and_as_json_and_fails_for_a_miss(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "moot.yaml"
    file.write_text(yaml.safe_dump(space(**FREE)))
    monkeypatch.chdir(tmp_path)
    assert main(["verify", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["without_anybody"] == ["lab/agent may call every tool without anybody"]
    assert sum(told["counts"].values()) == len(ROWS)
    assert main(["verify", "--level", "1"]) == 1
    words = capsys.readouterr().out
    assert "9.2.1" in words
    assert "NOT MET" in words
    assert "9.6.3" not in words
