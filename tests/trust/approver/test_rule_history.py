"""The history of rules: who decided, what was wrong, what was suspended, and observe mode, over restarts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from moot.trust.approver import line_file, rule_history
from moot.trust.approver.approver_metrics import expose_metrics, serve_metrics
from moot.trust.approver.approver_settings import ApproverSettings
from moot.trust.approver.rule_history import HISTORY_NAME, Prediction, RuleHistory, rule_version
from moot.trust.rules.rule_evaluation import RuleVerdict, evaluate
from moot.trust.rules.rule_store import RuleStore
from moot.trust.rules.rule_yaml import read_rules
from tests.trust.approver.test_approver import LEARNING, approver_scene
from tests.trust.histories import START, call, decided
from tests.waiting import HANG_SECONDS, until

DAY = 86_400.0
HEAD = "name: r, decision: approve, proposer: agent, to: files, tool: write_file, arguments: {text: x}"
TEXT = f"rules: [{{{HEAD}, path: {{path: 'a/<name>.md'}}}}]"


def test_counts_and_predictions_survive_a_restart_and_a_torn_line(tmp_path: Path) -> None:
    history = RuleHistory.open(tmp_path)
    history.count_decision("p1", START, rule=None)
    history.count_decision("p2", START, rule="r")
    # The answer to it, or the gateway's history, tells it again.
    history.count_decision("p2", START, rule="r")
    history.count("tripped", START + DAY, rule="r")
    history.count("wrong", START + DAY, rule="r")
    history.keep_prediction("p3", Prediction("r", "v", "approve"))
    file = tmp_path / HISTORY_NAME
    assert file.stat().st_mode & 0o777 == 0o600
    with file.open("a") as torn:
        torn.write('{"day": "2026-01-0')
    for _ in range(2):
        again = RuleHistory.open(tmp_path)
        again.count_decision("p2", START, rule="r")
        assert again.shares(10) == [{"day": "2026-01-05", "people": 1, "rules": 1, "share": 0.5}]
        assert again.rule_days(1) == [
            {"day": "2026-01-06", "rule": "r", "automatic": 0, "wrong": 1, "tripped": 1}
        ]
    later = decided(replace(call(), id="p3"), approved=True)
    assert again.compare(later) == Prediction("r", "v", "approve")
    assert RuleHistory.open(tmp_path).compare(later) is None


def test_many_lines_are_summed_up_and_old_days_and_ids_have_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_file, "MAX_LINES", 20)
    for name, bound in (("MAX_DAYS", 3), ("MAX_COUNTED", 4), ("MAX_PREDICTIONS", 2)):
        monkeypatch.setattr(rule_history, name, bound)
    history = RuleHistory.open(tmp_path)
    for number in range(25):
        history.count_decision(f"p{number}", START + DAY * (number // 5), rule="r")
        history.keep_prediction(f"q{number}", Prediction("r", "v", "approve"))
    again = RuleHistory.open(tmp_path)
    assert again.total("automatic", "r") == 15
    # What is told again after a long time is not counted twice, though its id is forgotten.
    again.count_decision("p1", START, rule="r")
    again.count_decision("p24", START + 4 * DAY, rule="r")
    assert again.total("automatic", "r") == 15
    assert "q22" not in again.predictions
    assert "q24" in again.predictions
    assert len((tmp_path / HISTORY_NAME).read_text().splitlines()) == 3 + 4 + 2


def test_a_folder_that_cannot_be_written_stops_no_counting(tmp_path: Path) -> None:
    (tmp_path / HISTORY_NAME).mkdir()
    history = RuleHistory.open(tmp_path)
    history.count_decision("p1", START, rule="r")
    assert history.total("automatic", "r") == 1


def test_results_of_a_changed_rule_are_not_those_of_the_old_one() -> None:
    (rule,) = read_rules(TEXT)
    (other,) = read_rules(TEXT.replace("a/", "b/"))
    (same,) = read_rules(TEXT.replace("}}]", "}, limits: {count: 3, per: 1h}, words: x}]"))
    observe = RuleHistory()
    case = call({"path": "a/x.md", "text": "x"})
    observe.predict(case.id, RuleVerdict("approve", rule, ""))
    assert observe.compare(decided(case, approved=True)) is not None
    assert observe.observed("r", version=rule_version(same)).agreements == 1
    assert observe.observed("r", version=rule_version(other)).agreements == 0
    assert evaluate([rule], case, case.at).decision == "approve"


async def test_observe_mode_counts_on_after_a_disagreement_and_over_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "trust"
    folder.mkdir(mode=0o700)
    (folder / "rules.yaml").write_text(TEXT)
    async with approver_scene(tmp_path, ApproverSettings(observe=True, learning=LEARNING)) as scene:

        def record() -> tuple[int, int]:
            found = scene.approver.history.observed("r")
            return found.agreements, found.conflicts

        # It is past what was before it came, and has looked at the host's tools.
        await until(lambda: bool(scene.store.definitions))
        assert await scene.write("a/one.md") == "by alice"
        await until(lambda: record() == (1, 0))
        scene.mood = "reject"
        await scene.write("a/two.md")
        await until(lambda: record() == (1, 1))
        assert "r" in scene.store.suspensions
        scene.mood = "approve"
        assert await scene.write("a/three.md") == "by alice"
        await until(lambda: record() == (2, 1))
        # A proposal is predicted, the approver goes, and it is decided meanwhile.
        scene.mood = "leave"
        seen = await scene.agent.propose(
            "files", "tools/call", {"name": "write_file", "arguments": {"path": "a/four.md", "text": "x"}}
        )
        await until(lambda: seen.id in scene.approver.history.predictions)
        await scene.away()
        await scene.alice.approve(seen.id)
        await scene.back()
        await until(lambda: record() == (3, 1))
        report = scene.approver.status.trust_report()
        assert report["observe"]["r"]["agreements"] == 3
        assert report["rule_history"][-1]["tripped"] == 1


async def test_the_report_and_the_metrics_tell_what_was_automatic_wrong_and_suspended(tmp_path: Path) -> None:
    async with approver_scene(tmp_path) as scene:
        rule = await scene.accepted()
        for number in range(20, 23):
            assert await scene.write(f"reports/day-{number}.md") == "by approver"
        newest = list(scene.approver.ledger)[-1].id
        await scene.alice.send("trust/stop", {"reason": "odd"}, about=newest)
        await scene.wait_for("trust/rule", "suspended")
        report = scene.approver.status.trust_report()
        (reply,) = report["rule_history"]
        assert {key: reply[key] for key in ("rule", "automatic", "wrong", "tripped")} == {
            "rule": rule, "automatic": 3, "wrong": 1, "tripped": 1,
        }  # fmt: skip
        assert report["days"][0]["people"] == 10
        read = lambda: expose_metrics(scene.store, scene.approver.history, scene.approver.reviews)  # noqa: E731
        async with (
            serve_metrics(read, "127.0.0.1", 0) as port,
            httpx.AsyncClient(timeout=HANG_SECONDS) as client,
        ):
            answer = await client.get(f"http://127.0.0.1:{port}/metrics")
        samples = {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
        }
        assert samples["moot_approver_decisions_total", "people"] == 10
        assert samples["moot_approver_decisions_total", "rules"] == 3
        assert samples["moot_rule_decisions_total", rule] == 3
        assert samples["moot_rule_wrong_total", rule] == 1
        assert samples["moot_rule_tripped_total", rule] == 1
        assert samples["moot_rule_suspended", rule] == 1
        assert samples["moot_rule_unreviewed", rule] == 2
        assert samples["moot_rules_stopped",] == 0
        # After a restart the counts are the same, though the gateway's history tells the decisions again.
        await scene.away()
        await scene.back()
        await until(lambda: scene.approver.ledger.get(newest) is not None)
        assert scene.approver.status.trust_report()["rule_history"] == [reply]
        assert RuleStore.open(scene.store.folder).suspensions.keys() == {rule}
