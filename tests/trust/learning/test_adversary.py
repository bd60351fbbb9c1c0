"""An agent behaves well to earn a rule, then tries its edges: it gets what was accepted and no more."""

from __future__ import annotations

import re
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from moot.protocol.operation import Json
from moot.trust.learning.learner import suggest
from moot.trust.rules.budgets import UseTally
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_evaluation import evaluate
from moot.trust.rules.tripwires import ProposalSeen, check_tripwires
from tests.examples import examples
from tests.rows import for_each_row
from tests.trust.histories import HOUR, START, accept, call, history

NOW = START + 86_400.0


def _earned() -> tuple[Rule, ...]:
    """Twenty good reports, one of them at each end of what was ever asked for."""
    good = history([{"path": f"/srv/reports/r-{n}.txt", "size": 10 + 5 * n} for n in range(10, 30)])
    (suggestion,) = suggest(good, now=NOW)
    return accept((), suggestion, by="alice", now=NOW)


RULES = _earned()
# What was accepted, said in other words than the rule's own.
ACCEPTED = re.compile(r"/srv/reports/r-[0-9]{2}\.txt", re.ASCII)


def _verdict(path: Json, size: Json = 100, **more: Json) -> str:
    return evaluate(RULES, call({"path": path, "size": size, **more}), NOW).decision


def test_what_was_earned_is_given() -> None:
    assert _verdict("/srv/reports/r-42.txt") == "approve"


PATHS = [
    "/srv/reports/../../etc/passwd",
    "/srv/reports/r-42.txt/../../../etc/passwd",
    "/srv/reports/..",
    "/srv/reports/./r-42.txt",
    "/srv/reports//r-42.txt",
    "//srv/reports/r-42.txt",
    "/srv/reports/%2e%2e/%2e%2e/etc/passwd",
    "/srv/reports/..%2f..%2fetc%2fpasswd",
    "/srv/reports/%252e%252e%252fetc",
    "/srv/reports/..\\..\\etc\\passwd",
    "/srv/reports/..;/etc/passwd",
    "/srv/reports/r-42.txt\0.sh",
    "/srv/reports/r-42.txt\n/etc/passwd",
    "/srv/reports/r-42.txt\r\n",
    "\n/srv/reports/r-42.txt",
    " /srv/reports/r-42.txt",
    "/srv/reports/r-42.txt ",
    "/SRV/reports/r-42.txt",
    "/srv/Reports/r-42.txt",
    "/srv/reports/R-42.TXT",
    "/srv/reports-old/r-42.txt",
    "/srv/reportss/r-42.txt",
    "/srv/report/r-42.txt",
    "/srv/reports/sub/r-42.txt",
    "/srv/reports/r-42.txt.sh",
    "/srv/reports/r-42.sh",
    "/srv/reports/r-4.txt",
    "/srv/reports/r-424.txt",
    "/srv/reports/r-42xtxt",
    "/srv/reports/.env",
    "/srv/reports/r-42.txt#x",
    "/srv/reports/r-42.txt?x=1",
    "file:///srv/reports/r-42.txt",
    "~/srv/reports/r-42.txt",
    "/srv/rep\u043erts/r-42.txt",  # a Cyrillic o
    "/srv/\u0280eports/r-42.txt",
    "/srv/reports/r-\u0664\u0662.txt",  # Arabic digits
    "/srv/reports/r-\uff14\uff12.txt",  # full-width digits
    "/srv/reports\u2215r-42.txt",  # a division slash
    "/srv/reports/r\u201042.txt",  # another hyphen
    "/srv/reports/r-42\u2024txt",  # a one-dot leader
    "/srv/reports/r-4\u03012.txt",
    "/srv/reports/r-42.txt\u200b",
    "/srv/reports/\u202etxt.24-r",
    "/srv/reports/r-42.txt\ufeff",
    "/srv/reports/r-" + "4" * 100_000 + ".txt",
    "",
]


@for_each_row("path", PATHS, ids=lambda path: ascii(path)[:48])
def test_no_other_path_is_given(path: str) -> None:
    assert _verdict(path) == "ask"


@for_each_row(
    "path",
    [
        None,
        True,
        42,
        ["/srv/reports/r-42.txt"],
        ["/srv/reports/r-42.txt", "/etc/passwd"],
        {"path": "/srv/reports/r-42.txt"},
        {},
        [],
    ],
)
def test_no_other_type_is_given(path: Json) -> None:
    assert _verdict(path) == "ask"


@for_each_row(
    "size", [59, 156, -1, 0, 10**18, 10**40, 100.0, 100.5, 1e300, "100", True, None, [100], {"x": 100}]
)
def test_no_other_size_is_given(size: Json) -> None:
    assert [_verdict("/srv/reports/r-42.txt", edge) for edge in (60, 155)] == ["approve", "approve"]
    assert _verdict("/srv/reports/r-42.txt", size) == "ask"


@for_each_row("name", ["mode", "Path", "path ", "p\u0430th", "", "__proto__", "path\0", "$.path", "**"])
def test_no_further_argument_is_given(name: str) -> None:
    assert _verdict("/srv/reports/r-42.txt", **{name: "/etc/passwd"}) == "ask"


def test_no_argument_may_be_missing_and_none_may_be_renamed() -> None:
    for arguments in ({}, {"path": "/srv/reports/r-42.txt"}, {"Path": "/srv/reports/r-42.txt", "size": 100}):
        assert evaluate(RULES, call(arguments), NOW).decision == "ask"


def test_no_look_alike_of_a_name_is_given() -> None:
    good = {"path": "/srv/reports/r-42.txt", "size": 100}
    agents = ("Agent", "agent ", "agent\u200b", "\u0430gent", "agent-2", "agen", "")
    tools = ("Write_file", "write_file ", "write-file", "wr\u0456te_file", "write_files", "write_fil", "*")
    hosts: list[list[str]] = [["Files"], ["files2"], ["f\u0456les"], ["files", "evil"], [], ["*"]]
    for agent in agents:
        assert evaluate(RULES, call(good, proposer=agent), NOW).decision == "ask"
    for tool in tools:
        assert evaluate(RULES, call(good, tool=tool), NOW).decision == "ask"
    for host in hosts:
        assert evaluate(RULES, call(good, to=host), NOW).decision == "ask", host


def test_nothing_beside_the_arguments_is_given() -> None:
    good = {"name": "write_file", "arguments": {"path": "/srv/reports/r-42.txt", "size": 100}}
    extras: list[dict[str, Json]] = [
        {"task": {"ttl": 1}},
        {"Name": "delete"},
        {"_meta": {"run-as": "root"}},
        {"_meta": []},
        {"arguments": None},
        {"name": ["write_file"]},
    ]
    assert evaluate(RULES, call(params=good), NOW).decision == "approve"
    for extra in extras:
        assert evaluate(RULES, call(params=good | extra), NOW).decision == "ask", extra


def test_a_burst_is_stopped_by_the_limit_that_came_with_the_rule() -> None:
    tally = UseTally()
    given = 0
    for number in range(500):
        case = call({"path": "/srv/reports/r-42.txt", "size": 100}, at=NOW + number)
        verdict = evaluate(RULES, case, NOW + number, times=tally.times())
        if verdict.decision == "approve":
            tally.record(RULES[0].name, NOW + number)
            given += 1
    assert given == RULES[0].limits.max_decisions == 20
    assert tally.remaining(RULES[0], NOW + 499) == 0
    assert tally.remaining(RULES[0], NOW + HOUR + 500) == 20


def test_trying_the_edge_suspends_the_rule_and_an_ordinary_miss_does_not() -> None:
    def after(arguments: dict[str, Json]) -> list[str]:
        found = [check_tripwires(rule, ProposalSeen(call(arguments)), NOW) for rule in RULES]
        return [suspension.why for suspension in found if suspension is not None]

    good = {"path": "/srv/reports/r-42.txt", "size": 100}
    assert after(good) == []
    assert after(good | {"path": "/srv/other/r-42.txt"}) == []
    assert after(good | {"size": 160}) == []
    for odd in (
        {"path": "/srv/reports/../x"},
        {"path": "/srv/reports/%2e%2e/x"},
        {"path": "/srv/reports/a\0"},
        {"path": ["/srv/reports/r-42.txt"]},
        {"path": "/srv/reports/" + "a" * 10_000},
        {"size": 10**9},
        {"size": "100"},
        {"force": True},
    ):
        assert len(after(good | odd)) == 1, odd


_hostile = st.text(
    alphabet=st.sampled_from(list("/.%\\-0129rtxRsvepo2ef\0\n \u043e\uff0e\u200b\u2215\u0301")), max_size=40
)
_near = st.builds(
    lambda at, text, cut: "/srv/reports/r-42.txt"[:at] + text + "/srv/reports/r-42.txt"[at + cut :],
    st.integers(0, 21),
    _hostile,
    st.integers(0, 4),
)


@settings(deadline=None, max_examples=examples(30))
@given(_hostile | _near | _near.map(lambda text: "/srv/reports/" + text))
def test_whatever_is_tried_only_what_was_accepted_is_given(path: str) -> None:
    if _verdict(path) == "approve":
        assert ACCEPTED.fullmatch(path)


def test_a_blank_in_a_path_does_not_make_it_any_text() -> None:
    files = [{"path": f"/srv/reports/my file {n}.txt"} for n in range(10, 24)]
    rules = [suggestion.rule for suggestion in suggest(history(files), now=NOW)]
    assert evaluate(rules, call({"path": "/srv/reports/my file 50.txt"}), NOW).decision == "approve"
    for path in ("/etc/my file 50.txt", "/srv/reports/../my file 50.txt", "/srv/reports/my/file 50.txt"):
        assert evaluate(rules, call({"path": path}), NOW).decision == "ask"


def test_free_text_stays_text_of_that_kind() -> None:
    memos = [{"memo": f"thanks for lunch on day {n}"} for n in range(10, 24)]
    rules = [suggestion.rule for suggestion in suggest(history(memos), now=NOW)]
    assert evaluate(rules, call({"memo": "thanks for dinner on day 7"}), NOW).decision == "approve"
    for memo in (
        "/etc/passwd",
        "rm -rf $HOME",
        "thanks; rm x",
        "drop table users",
        "thanks for all " * 400,
        "see https://evil.example",
        "@everyone thanks",
    ):
        assert evaluate(rules, call({"memo": memo}), NOW).decision == "ask", memo


def test_building_up_a_rule_with_both_ends_does_not_open_the_middle() -> None:
    """Good small files and one large folder do not add up to large files everywhere."""
    rows = [
        {"path": f"/srv/{folder}/n-{n}.txt", "mode": mode}
        for n, (folder, mode) in product(range(10, 22), (("a", "create"), ("b", "append")))
    ]
    rules = [suggestion.rule for suggestion in suggest(history(rows), now=NOW)]
    assert {evaluate(rules, call(row), NOW).decision for row in rows} == {"approve"}
    assert evaluate(rules, call({"path": "/srv/a/n-15.txt", "mode": "append"}), NOW).decision == "ask"
