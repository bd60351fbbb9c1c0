"""Worlds that nobody thought of when the learning was written: what rules must not take from them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import count

import pytest

from moot.protocol.operation import Json
from moot.trust.approver.rule_suggester import MAX_LATEST_DECISIONS, _learned_from
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.learning.learner import suggest
from moot.trust.learning.lessons import ToolSchemas
from moot.trust.rules.accepted_calls import RejectedCalls
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_evaluation import evaluate
from moot.trust.rules.tripwires import PersonDecided, check_tripwires
from tests.trust.histories import HOUR, START, accept, call, decided, history

NOW = START + 400 * 86_400.0
# Further apart than a sitting, at all hours.
EVERY = 5.3 * HOUR


def learned(decisions: Sequence[HistoryProposal], schemas: ToolSchemas | None = None) -> tuple[Rule, ...]:
    """The rules after somebody accepted all that was suggested."""
    rules: tuple[Rule, ...] = ()
    for suggestion in suggest(decisions, now=NOW, schemas=schemas or {}):
        rules = accept(rules, suggestion, by="alice", now=NOW)
    return rules


def verdict(rules: Sequence[Rule], arguments: dict[str, Json], tool: str = "write_file") -> str:
    return evaluate(rules, call(arguments, tool=tool), NOW).decision


def test_rejections_count_however_much_rules_decided_since() -> None:
    numbers = count()

    def query(columns: str) -> dict[str, Json]:
        return {"sql": f"SELECT {columns} FROM patients WHERE id = {next(numbers)}"}  # noqa: S608

    rejected = history([query("ward, bed") for _ in range(12)], lambda _: False, tool="query", every=EVERY)
    automatic = [
        decided(call({"n": 1}, tool="ping", at=START + number), approved=True, by="approver", rule="ping")
        for number in range(MAX_LATEST_DECISIONS)
    ]
    approved = history([query("ward, bed") for _ in range(20)], tool="query", every=EVERY)
    everything = [*rejected, *automatic, *approved]
    assert learned(approved) != ()
    assert learned(_learned_from(everything)) == ()
    assert [each for each in _learned_from(everything) if each.lesson == "reject"] == rejected


@pytest.mark.parametrize("flat", ["job.command", "job"])
def test_arguments_that_words_cannot_tell_apart_get_no_rule(flat: str) -> None:
    """The sentence named one of them twice, and the other could be anything."""
    revisions = random.Random(1).sample(range(10, 60), 30)
    undo = "kubectl rollout undo deployment/web --to-revision={}"
    nested = "job" if flat == "job.command" else "job.command"
    arguments: list[dict[str, Json]] = [
        {nested: {"command": undo.format(n)} if nested == "job" else undo.format(n), flat: "kubectl get pods"}
        for n in revisions
    ]
    assert learned(history(arguments, tool="deploy", every=EVERY)) == ()


def test_a_name_with_a_dot_is_fine_by_itself() -> None:
    arguments: list[dict[str, Json]] = [{"log.level": "debug"} for _ in range(12)]
    rules = learned(history(arguments, every=EVERY))
    assert verdict(rules, {"log.level": "debug"}) == "approve"
    assert verdict(rules, {"log": {"level": "debug"}}) == "ask"


def test_pairs_are_told_apart_where_only_the_schema_tells_what_a_text_is() -> None:
    draw = random.Random(2)
    arguments: list[dict[str, Json]] = [
        {"source": f"https://{host}/{draw.randrange(1000, 9999)}", "bucket": bucket}
        for host, bucket in [("hr.corp.example/export", "private"), ("news.example/feed", "public")] * 20
    ]
    schema: Json = {"type": "object", "properties": {"source": {"type": "string", "format": "uri"}}}
    rules = learned(history(arguments, tool="import_data", every=EVERY), {("files", "import_data"): schema})
    hr, news = "https://hr.corp.example/export/4711", "https://news.example/feed/4711"
    assert verdict(rules, {"source": hr, "bucket": "private"}, "import_data") == "approve"
    assert verdict(rules, {"source": news, "bucket": "public"}, "import_data") == "approve"
    assert verdict(rules, {"source": hr, "bucket": "public"}, "import_data") == "ask"


def test_pairs_that_nobody_saw_are_not_combined_however_many_arguments_there_are() -> None:
    names = ["approved", "built", "checked", "drained", "exported", "has_backup", "purge"]
    draw = random.Random(3)
    # Each only after the one before it.
    done = [draw.randrange(len(names) + 1) for _ in range(160)]
    arguments: list[dict[str, Json]] = [{name: at < n for at, name in enumerate(names)} for n in done]
    rules = learned(history(arguments, tool="advance", every=EVERY))
    bad: dict[str, Json] = dict.fromkeys(names, True) | {"has_backup": False}
    assert verdict(rules, bad, "advance") == "ask"
    assert any(verdict(rules, each, "advance") == "approve" for each in arguments)


NOTE = "notes/n-13.md"


def _with_nulls() -> tuple[list[HistoryProposal], list[HistoryProposal]]:
    texts = [f"notes/n-{n}.md" for n in range(20, 64)]
    arguments: list[dict[str, Json]] = [
        {"path": text} | ({"encoding": None} if at % 2 else {}) for at, text in enumerate(texts)
    ]
    approved = history(arguments, tool="read_file", every=EVERY)
    rejected = [
        decided(call({"path": NOTE, "encoding": None}, tool="read_file", at=START + n * HOUR), approved=False)
        for n in range(2)
    ]
    return approved, rejected


def test_who_rejects_a_call_with_a_null_argument_rejects_it_without() -> None:
    approved, rejected = _with_nulls()
    rules = learned([*rejected, *approved])
    assert not any(rule.decision == "reject" for rule in rules)
    assert verdict(rules, {"path": NOTE}, "read_file") == "ask"


@pytest.mark.parametrize("given", [{"path": NOTE}, {"path": NOTE, "encoding": None}])
def test_a_call_that_was_rejected_is_asked_about_with_and_without_a_null(given: dict[str, Json]) -> None:
    approved, rejected = _with_nulls()
    rules = learned(approved)
    case = call(given, tool="read_file")
    assert evaluate(rules, case, NOW).decision == "approve"
    assert evaluate(rules, case, NOW, rejected=RejectedCalls(rejected)).decision == "ask"
    # An approval takes back the rejection of its very call, and nothing else.
    later = [*rejected, decided(call({"path": NOTE}, tool="read_file", at=NOW), approved=True)]
    assert evaluate(rules, case, NOW, rejected=RejectedCalls(later)).decision == "ask"
    later.append(decided(call({"path": NOTE, "encoding": None}, tool="read_file", at=NOW), approved=True))
    assert evaluate(rules, case, NOW, rejected=RejectedCalls(later)).decision == "approve"


BARE: dict[str, Json] = {"path": NOTE}
NULL: dict[str, Json] = {"path": NOTE, "encoding": None}
OTHER: dict[str, Json] = {"path": NOTE, "head": None}


@pytest.mark.parametrize(
    ("said", "rejected"),
    [
        ([(NULL, False)], [BARE, NULL, OTHER]),
        ([(NULL, False), (NULL, True)], []),
        ([(NULL, False), (BARE, True)], [BARE, NULL, OTHER]),
        ([(NULL, False), (OTHER, True)], [BARE, NULL, OTHER]),
        ([(BARE, False), (NULL, True)], [BARE, NULL, OTHER]),
        ([(BARE, False), (BARE, True)], []),
        # Only what was approved since counts.
        ([(NULL, True), (BARE, False)], [BARE, NULL, OTHER]),
        ([(BARE, False), (NULL, True), (OTHER, False)], [BARE, NULL, OTHER]),
    ],
)
def test_an_approval_takes_back_the_rejection_of_its_very_call(
    said: list[tuple[dict[str, Json], bool]], rejected: list[dict[str, Json]]
) -> None:
    past = [decided(call(arguments, tool="read_file"), approved=yes) for arguments, yes in said]
    # Also that of a tool that has changed since.
    for decision in past:
        decision.outdated = True
    known = RejectedCalls(past)
    assert [each for each in (BARE, NULL, OTHER) if call(each, tool="read_file") in known] == rejected
    assert call({"path": "notes/n-14.md"}, tool="read_file") not in known


def test_a_rejection_with_a_null_contradicts_a_rule_for_the_call_without() -> None:
    approved, rejected = _with_nulls()
    bare = next(
        rule for rule in learned(approved) if rule.matches(call({"path": NOTE}, tool="read_file"), NOW)
    )
    assert not bare.matches(rejected[0].case, NOW)
    assert check_tripwires(bare, PersonDecided(rejected[0]), NOW) is not None


def test_a_path_below_a_host_has_no_word_that_people_should_look_at() -> None:
    draw = random.Random(4)
    syllables = ["ba", "den", "lo", "mi", "ren", "sho", "tal", "vu"]

    def name() -> str:
        return "".join(draw.choices(syllables, k=3))

    arguments: list[dict[str, Json]] = [
        {"url": "https://wiki.corp.example/" + "/".join(name() for _ in range(draw.randint(1, 5)))}
        for _ in range(90)
    ]
    rules = learned(history(arguments, tool="fetch", every=EVERY))
    base = "https://wiki.corp.example"
    assert verdict(rules, {"url": f"{base}/badenlo/mirensho/talvuba"}, "fetch") == "approve"
    for path in ("admin/users/delete/all", "prod/shutdown", "badenlo/secrets/talvuba"):
        assert verdict(rules, {"url": f"{base}/{path}"}, "fetch") == "ask", path


def _subjects(end: str = "") -> list[dict[str, Json]]:
    months = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
    ]
    return [
        {"subject": f"{what} of {month}{end}"} for what in ("Report", "Plan", "Notes") for month in months
    ]


def test_words_have_a_second_line_only_where_there_was_one() -> None:
    """A second line can be a header of its own."""
    one = learned(history(_subjects(), tool="send_mail", every=EVERY))
    assert verdict(one, {"subject": "Summary of November"}, "send_mail") == "approve"
    assert verdict(one, {"subject": "Weekly report\nBcc: all-staff"}, "send_mail") == "ask"
    assert verdict(one, {"subject": "call 10.0.0.5 now"}, "send_mail") == "ask"
    lines = learned(history(_subjects("\nas it is."), tool="send_mail", every=EVERY))
    assert verdict(lines, {"subject": "Weekly report\nas it was."}, "send_mail") == "approve"
