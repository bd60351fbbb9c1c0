"""`moot rules diff` and `moot rules replay`: what differs between rules, and over a history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moot.cli import main
from moot.protocol.operation import Json
from moot.trust.checks.rule_diff import RuleDiff, compare_rules
from moot.trust.checks.rule_replay import differing, replay
from moot.trust.checks.rule_tests import read_tests
from moot.trust.rules.rule_evaluation import evaluate
from moot.trust.rules.rule_set import RuleSet
from moot.trust.rules.rule_yaml import read_rules
from tests.store import journals
from tests.trust.histories import START, call, decided

HEAD = "name: r, decision: approve, proposer: agent, to: files"
NARROW = f"rules: [{{{HEAD}, tool: write_file, path: {{path: 'reports/day-<2 digits>.md'}}}}]"


def diff(old: str, new: str, now: float = START) -> RuleDiff:
    return compare_rules(RuleSet(read_rules(old)), RuleSet(read_rules(new)), now)


def check_calls_are_real(found: RuleDiff, old: str, new: str) -> None:
    """Each call that is shown, read as a test, is decided by the two files as the difference says."""
    for each in found.calls:
        test = read_tests(json.dumps({"tests": [{"expect": "ask", **each.call}]}))[0]
        for text, verdict in ((old, each.old), (new, each.new)):
            assert evaluate(read_rules(text), test.case, each.at).decision == verdict.decision


@pytest.mark.parametrize(
    ("change", "wider"),
    [
        (("reports/day-<2 digits>.md", "reports/<name>.md"), "path of path"),
        (("tool: write_file", "tool: [write_file, delete_file]"), "proposer, to, method, tool or arguments"),
        (("to: files", "to: [files, mail]"), "proposer, to, method, tool or arguments"),
        (("proposer: agent, ", ""), "proposer, to, method, tool or arguments"),
        (("path: {path: 'reports/day-<2 digits>.md'}", "extra_arguments: true"), "extra_arguments"),
    ],
)
def test_a_wider_rule_is_named_with_a_call_that_it_now_approves(change: tuple[str, str], wider: str) -> None:
    new = NARROW.replace(*change)
    found = diff(NARROW, new)
    assert [(each.change, each.wider) for each in found.changes] == [("changed", wider)]
    assert ("ask", "approve") in {(each.old.decision, each.new.decision) for each in found.calls}
    check_calls_are_real(found, NARROW, new)
    back = diff(new, NARROW)
    assert [each.wider for each in back.changes] == [None]
    assert {(each.old.decision, each.new.decision) for each in back.calls} == {("approve", "ask")}


def test_rules_that_came_went_or_moved_are_told_and_what_that_changes() -> None:
    no = "{name: block, decision: reject, tool: write_file}"
    one, other = (
        f"rules: [{no}, {{{HEAD}, tool: write_file}}]",
        f"rules: [{{{HEAD}, tool: write_file}}, {no}]",
    )
    moved = diff(one, other)
    assert [(each.rule, each.change) for each in moved.changes] == [("r", "moved")]
    assert [(each.old.decision, each.new.decision) for each in moved.calls] == [("reject", "approve")]
    check_calls_are_real(moved, one, other)
    gone = diff(one, f"rules: [{no.replace('block', 'never')}]")
    assert [(each.rule, each.change) for each in gone.changes] == [
        ("block", "removed"),
        ("r", "removed"),
        ("never", "added"),
    ]
    assert diff(one, one) == RuleDiff((), ())


def test_a_rule_that_ends_later_is_wider() -> None:
    ends = NARROW.replace("}}]", "}, limits: {expires_at: '2030-01-01T00:00:00Z'}}]")
    assert diff(ends, NARROW).changes[0].wider == "limits.expires_at"
    assert diff(ends, NARROW).calls == ()
    assert diff(ends, NARROW, now=1_893_456_000.0).calls[0].new.decision == "approve"


def test_replay_tells_agreements_contradictions_and_what_is_asked_again() -> None:
    rules = RuleSet(read_rules(NARROW))

    def write(path: str, minute: int) -> Any:
        return call({"path": path}, at=START + 60 * minute)

    history = [
        decided(write("reports/day-01.md", 0), approved=True),
        decided(write("reports/day-02.md", 1), approved=False),
        decided(write("notes.md", 2), approved=True),
        decided(write("notes.md", 3), approved=True, by="approver", rule="gone"),
        decided(write("reports/day-03.md", 4), approved=False, by="approver", rule="gone"),
        # People rejected this very call before.
        decided(write("reports/day-02.md", 5), approved=True, by="approver", rule="r"),
        decided(write("reports/day-04.md", 6), approved=True, by="approver", rule="r"),
    ]
    found = replay(rules, history)
    assert [each.effect for each in found] == [
        "spared", "contradicts", "same", "asks", "reversed", "asks", "same",
    ]  # fmt: skip
    assert [each.effect for each in replay(RuleSet(), history)].count("asks") == 4
    only = differing(replay(RuleSet(), history), found)
    assert [each.decision.id for each in only] == [history[at].id for at in (0, 1, 4, 6)]


def test_replay_counts_limits_as_they_would_have_been_used_up() -> None:
    limited = NARROW.replace("}}]", "}, limits: {count: 2, per: 1h, while_present: alice}}]")
    rules = RuleSet(read_rules(limited))
    days = [call({"path": f"reports/day-{at:02}.md"}, at=START + 600 * at) for at in range(10)]
    found = replay(rules, [decided(case, approved=True) for case in days])
    assert [each.effect for each in found] == [
        "spared", "spared", "same", "same", "same", "same", "spared", "spared", "same", "same",
    ]  # fmt: skip


def _journal(folder: Path) -> None:
    """Two proposals: one that a person approved, one that a person rejected."""
    journal = journals.folder_in(folder / ".moot")
    answer = journals.envelope_record

    def body(path: str) -> dict[str, Json]:
        return {"method": "tools/call", "params": {"name": "write_file", "arguments": {"path": path}}}

    journals.write_now(
        journal,
        [
            answer("p1", "agent", t=START, kind="mcp/proposal", to=["files"],
            payload=body("reports/day-01.md")), answer("p2", "agent", t=START, kind="mcp/proposal",
            to=["files"], payload=body("reports/day-02.md")), answer(
                "r1", "ann", t=START + 5, kind="mcp/request", to=["files"], correlation_id=["p1"],
                payload=body("reports/day-01.md"),
            ),
            answer(
                "n2", "ann", t=START + 6, kind="mcp/reject", to=["agent"], correlation_id=["p2"],
                payload={"reason": "unsafe"},
            ),
        ],
    )  # fmt: skip


def test_the_commands_read_files_and_a_journal_and_have_exit_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.yaml").write_text("rules: []")
    Path("new.yaml").write_text(NARROW)
    assert main(["rules", "diff", "new.yaml", "new.yaml"]) == 0
    assert capsys.readouterr().out == "the same rules in the same order\n"
    assert main(["rules", "diff", "old.yaml", "new.yaml"]) == 1
    output = capsys.readouterr().out
    assert "+ r (approve): added" in output
    assert '  ask -> approve  {"proposer": "agent", "to": ["files"]' in output
    _journal(tmp_path)
    assert main(["rules", "replay", "new.yaml", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["effects"] == {"spared": 1, "contradicts": 1}
    assert [(each["id"], each["was"], each["decision"]) for each in answer["changed"]] == [
        ("p1", "approve", "approve"),
        ("p2", "reject", "approve"),
    ]
    assert main(["rules", "replay", "new.yaml", "--old", "new.yaml"]) == 0
    assert "0 are decided otherwise than by the old rules" in capsys.readouterr().out
    assert main(["rules", "replay", "old.yaml"]) == 0
    assert capsys.readouterr().out == "2 proposals; rules decide 0, people 2\n"
    assert main(["rules", "replay", "missing.yaml"]) == 2
    assert main(["rules", "replay"]) == 2
    assert "name the rules file" in capsys.readouterr().err
