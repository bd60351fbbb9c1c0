"""Edits, patches, lists, pairs, ids and pages: learned in few decisions, and no wider than they mean."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from moot.protocol.operation import Json
from moot.trust.approver.rule_suggester import ask_as_people_saw
from moot.trust.learning.learner import suggest
from moot.trust.rules.budgets import UseTally
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_evaluation import evaluate, row_name
from moot.trust.rules.rule_json import rule_as_json, rule_of_json
from moot.trust.rules.rule_words import MAX_SENTENCE
from moot.values.scalars import date_after
from tests.trust.histories import START, call, decided, history

NOW = START + 86_400.0
NAMES = [f"{one}{two}" for one in ("ada", "bob", "cyd", "dan", "eve") for two in ("lin", "mar", "ros", "tan")]
FILES = [
    f"src/app/{folder}/{name}{folder}.py"
    for folder in ("web", "db", "mail", "api", "cli", "core")
    for name in NAMES[:4]
]


def learned(tool: str, calls: list[dict[str, Json]], *, reads: bool = False) -> list[Rule]:
    declared = {("files", tool)} if reads else set()
    decisions = history(calls, tool=tool)
    found = suggest(decisions, now=NOW, reading=declared, repeatable=declared)
    # What is written into the rules file means the same.
    return [rule_of_json(rule_as_json(each.rule), "rule") for each in found]


def verdicts(rules: list[Rule], tool: str, calls: list[dict[str, Json]]) -> list[str]:
    return [evaluate(rules, call(each, tool=tool), NOW).decision for each in calls]


def edit(path: str, new: str = "x = 1") -> dict[str, Json]:
    return {"path": path, "old_string": f"def {path}", "new_string": f"{new} # {path}"}


RUNS = [
    ".github/workflows/ci.py", "src/app/hooks/zoe.py", "src/app/web/setup.py", "src/app/web/conftest.py",
    "src/app/web/zoe.sh", "src/app/web/secrets.py", "src/app/../zoe.py", "src/app/bin/zoe.py", "setup.py",
    "src/other/zoe.py", "src/app/web/zoe.toml", "/etc/zoe.py", "src/app/web/.env.py",
]  # fmt: skip


def test_edits_are_learned_by_folder_and_language_and_never_what_runs() -> None:
    rules = learned("edit_file", [edit(path) for path in FILES])
    assert (
        verdicts(rules, "edit_file", [edit("src/app/web/zoe.py"), edit("src/app/new/zoe.py")])
        == ["approve"] * 2
    )
    assert verdicts(rules, "edit_file", [edit(path) for path in RUNS]) == ["ask"] * len(RUNS)
    assert verdicts(rules, "edit_file", [edit("src/app/web/zoe.py", "x" * 5_000)]) == ["ask"]


def test_what_runs_is_edited_where_it_was_approved_as_such() -> None:
    calls = [{"path": "setup.py", "content": f"version = {n}"} for n in range(12)]
    rules = learned("write_file", calls)
    assert verdicts(rules, "write_file", [{"path": "setup.py", "content": "version = 99"}]) == ["approve"]
    assert verdicts(rules, "write_file", [{"path": "conftest.py", "content": "version = 99"}]) == ["ask"]


def test_lists_of_edits_are_learned_like_one() -> None:
    def edits(path: str, count: int = 1, **more: Json) -> dict[str, Json]:
        return {
            "path": path,
            "edits": [{"oldText": f"a{n} {path}", "newText": "b = {}"} | more for n in range(count)],
        }

    rules = learned("edit_file", [edits(path, 1 + at % 3) for at, path in enumerate(FILES)])
    fine = [edits("src/app/web/zoe.py"), edits("src/app/web/zoe.py", 3)]
    assert verdicts(rules, "edit_file", fine) == ["approve"] * 2
    wrong = [
        edits("src/app/web/zoe.py", 4),
        edits("src/app/web/zoe.py", 0),
        edits("src/app/web/zoe.py", run="x"),
    ]
    wrong += [edits("src/app/web/zoe.py") | {"edits": "x"}, edits("src/app/web/zoe.sh")]
    assert verdicts(rules, "edit_file", wrong) == ["ask"] * len(wrong)


def diff(path: str, more: str = "") -> str:
    return f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n{more}"


def begin(*lines: str) -> str:
    return "\n".join(("*** Begin Patch", *lines, "*** End Patch"))


@pytest.mark.parametrize("write", [diff, lambda path: begin(f"*** Update File: {path}", "@@", "-a", "+b")])
def test_patches_are_learned_by_the_files_that_they_change(write) -> None:  # type: ignore[no-untyped-def]
    rules = learned("apply_patch", [{"patch": write(path)} for path in FILES])
    good = write("src/app/web/zoe.py")
    assert verdicts(rules, "apply_patch", [{"patch": good}]) == ["approve"]
    wrong = [write(path) for path in RUNS] + [
        diff("src/app/web/zoe.py", diff("setup.py")),
        diff("src/app/web/zoe.py", "+++ b/setup.py\n"),
        diff("src/app/web/zoe.py").replace("+c", "+c\n+d"),
        diff("src/app/web/zoe.py").replace("--- a/", "new mode 100755\n--- a/"),
        diff("src/app/web/zoe.py").replace("--- a/src", "--- a/other"),
        # What git makes of these: empty files made and deleted, another folder, other names above the lines.
        diff(
            "src/app/web/zoe.py", "diff --git a/setup.py b/setup.py\nnew file mode 100644\nindex 0..e69de29\n"
        ),
        "diff --git a/x.py b/x.py\ndeleted file mode 100644\n" + diff("src/app/web/zoe.py"),
        diff("src/app/web/zoe.py").replace("+++ b/", "+++ "),
        diff("src/app/web/zoe.py").replace("--- a/", "--- ").replace("+++ b/", "+++ "),
        diff("src/app/web/zoe.py").replace("diff --git a/src/app/web/zoe.py b/src", "diff --git a/x b/src"),
        begin("*** Update File: src/app/web/zoe.py", "@@", "-a", " *** Delete File: setup.py"),
        begin("*** Update File: src/app/web/zoe.py", "@@", "-a\x0b*** Delete File: setup.py"),
        begin("*** Delete File: src/app/web/zoe.py"),
        begin("*** Update File: src/app/web/zoe.py", "*** Move to: setup.py", "@@", "-a"),
        good + "\n*** anything",
        "",
    ]
    assert verdicts(rules, "apply_patch", [{"patch": text} for text in wrong]) == ["ask"] * len(wrong)


def test_lists_hold_elements_that_were_seen_and_are_no_longer_than_seen() -> None:
    pairs = [("ui", "bug"), ("ui",), ("docs", "bug"), ("bug",), ("docs",), ("ui", "docs")] * 4
    rules = learned(
        "label", [{"ticket": f"WEB-{100 + n}", "labels": [*each]} for n, each in enumerate(pairs)]
    )
    fine: list[Json] = [["ui"], ["docs", "ui"], ["bug", "docs"]]
    assert (
        verdicts(rules, "label", [{"ticket": "WEB-777", "labels": each} for each in fine]) == ["approve"] * 3
    )
    wrong: list[Json] = [["ui", "wontfix"], [], ["ui", "bug", "docs"], "ui", [["ui"]], [None], {"0": "ui"}]
    assert verdicts(rules, "label", [{"ticket": "WEB-777", "labels": each} for each in wrong]) == ["ask"] * 7
    assert verdicts(rules, "label", [{"ticket": "SEC-777", "labels": ["ui"]}]) == ["ask"]


def test_mail_goes_to_several_people_of_one_domain() -> None:
    calls = [
        {"to": [f"{name}@corp.example", f"{name}-{NAMES[at - 1]}@corp.example"], "subject": f"Plan of {name}"}
        for at, name in enumerate(NAMES)
    ]
    rules = learned("send_mail", calls)
    fine: list[Json] = [["zoe@corp.example"], ["zoe@corp.example", "kim@corp.example"]]
    wrong: list[Json] = [
        ["zoe@corp.example", "zoe@corp.example.net"],
        ["zoe@gmail.com"],
        ["zoe@corp.example"] * 3,
    ]
    assert (
        verdicts(rules, "send_mail", [{"to": to, "subject": "Plan of zoe"} for to in fine]) == ["approve"] * 2
    )
    assert verdicts(rules, "send_mail", [{"to": to, "subject": "Plan of zoe"} for to in wrong]) == ["ask"] * 3


def test_pairs_are_folders_that_were_seen_together() -> None:
    calls = [
        {"source": f"/srv/app/{top}/{name}{top}.md", "destination": f"/backup/{top}/{name}{top}.md"}
        for top in ("docs", "notes")
        for name in NAMES
    ]
    rules = learned("copy_file", calls)

    def copy(source: str, target: str) -> dict[str, Json]:
        return {"source": source, "destination": target}

    assert verdicts(rules, "copy_file", [copy("/srv/app/docs/zoe.md", "/backup/docs/zoe.md")]) == ["approve"]
    wrong = [
        copy("/srv/app/docs/zoe.md", "/backup/notes/zoe.md"),
        copy("/srv/app/docs/secrets.md", "/backup/docs/zoe.md"),
        copy("/srv/app/docs/zoe.md", "/var/www/zoe.md"),
        copy("/srv/app/docs/zoe.md", "/backup/docs/../x.md"),
    ]
    assert verdicts(rules, "copy_file", wrong) == ["ask"] * 4


def test_invoices_have_a_form_and_each_payee_its_amounts() -> None:
    def pay(payee: str, amount: float, invoice: str) -> dict[str, Json]:
        return {"payee": payee, "amount": amount, "invoice": invoice}

    calls = [pay("acme", 100 + n, f"INV-2026-{400 + n:04}") for n in range(12)]
    calls += [pay("globex", 900 + n, f"INV-2026-{500 + n:04}") for n in range(12)]
    rules = learned("pay", calls)
    assert len(rules) == 1
    assert (
        verdicts(rules, "pay", [pay("acme", 105, "INV-2026-0777"), pay("globex", 905, "INV-2026-0778")])
        == ["approve"] * 2
    )
    wrong = [
        pay("acme", 905, "INV-2026-0777"),
        pay("hooli", 105, "INV-2026-0777"),
        pay("acme", 105, "X-2026-0777"),
    ]
    assert verdicts(rules, "pay", wrong) == ["ask"] * 3


def test_a_payee_with_few_payments_is_in_the_same_suggestion_and_one_with_a_rejection_is_not() -> None:
    def pay(payee: str, amount: int) -> dict[str, Json]:
        return {"payee": payee, "amount": amount, "invoice": f"INV-{next(numbers):04}"}

    numbers = count(1)
    calls = [pay(payee, 100 * at + n) for n in range(4) for at, payee in enumerate(NAMES[:6], start=1)]
    calls += [pay("seldom", 50)] + [pay("odd", 60 + n) for n in range(4)]
    decisions = [*history(calls, tool="pay"), decided(call(pay("odd", 61), tool="pay"), approved=False)]
    (suggestion,) = suggest(decisions, now=NOW)
    assert len(suggestion.words) <= MAX_SENTENCE
    fine = [pay(NAMES[0], 101), pay(NAMES[5], 603)]
    wrong = [pay(NAMES[0], 104), pay(NAMES[5], 103), pay("seldom", 50), pay("odd", 62), pay("hooli", 101)]
    assert verdicts([suggestion.rule], "pay", fine) == ["approve"] * 2
    assert verdicts([suggestion.rule], "pay", wrong) == ["ask"] * 5
    assert all(suggestion.rule.matches(call(dict(each), tool="pay"), NOW) for each in suggestion.allows)


def test_each_payee_is_paid_no_more_often_than_people_paid_it() -> None:
    """Six rents a month are not six to one landlord, and a restart does not forget who was paid."""

    def pay(payee: str, amount: int) -> dict[str, Json]:
        return {"payee": payee, "amount": amount}

    rents = [pay(payee, 100 * at + n) for n in range(4) for at, payee in enumerate(NAMES[:6], start=1)]
    decisions = history(rents, tool="pay", every=5 * 86_400.0)
    now = decisions[-1].case.at + 30 * 86_400.0
    (found,) = suggest(decisions, now=now)
    rule = rule_of_json(rule_as_json(found.rule), "rule")
    assert (rule.limits.max_decisions, rule.limits.per_seconds, rule.limits.max_each) == (6, 30 * 86_400.0, 1)
    assert "at most 6 times in 30 days, 1 time each" in rule.words
    tally, paid = UseTally(), []
    for payee, amount in ((NAMES[0], 101), (NAMES[0], 102), (NAMES[1], 201), (NAMES[0], 101)):
        case = call(pay(payee, amount), tool="pay", at=now)
        verdict = evaluate([rule], case, now, (), tally.times())
        if verdict.decision == "approve":
            tally.record(rule.name, now, row=row_name(rule, case))
            paid.append(decided(case, approved=True, rule=rule.name))
        else:
            assert verdict.why.endswith("its limit of 1 such calls in 2.592e+06 seconds")
    assert [each.case.arguments["payee"] for each in paid] == [NAMES[0], NAMES[1]]
    restarted = UseTally()
    restarted.record_past(paid, [rule])
    again = [call(pay(payee, 101 if payee == NAMES[0] else 301), tool="pay") for payee in NAMES[:3:2]]
    assert [evaluate([rule], each, now + 60, (), restarted.times()).decision for each in again] == [
        "ask", "approve",
    ]  # fmt: skip
    # People who pay somebody more often make a larger limit.
    more = [decided(call(pay(NAMES[0], 101), tool="pay", at=now + 60 * n), approved=True) for n in range(3)]
    (larger,) = suggest([*decisions, *more], [replace(rule, limits=rule.limits)], now=now + 3600)
    assert larger.rule.limits.max_each == 3


def booked(days: list[int]) -> list[Rule]:
    """What is learned of bookings, one each day, for so many days ahead."""
    decisions = [
        decided(call({"room": "blue", "date": date_after(str(ahead), at)}, tool="book", at=at), approved=True)
        for at, ahead in ((START + 86_400.0 * number, ahead) for number, ahead in enumerate(days))
    ]
    found = suggest(decisions, now=START + 86_400.0 * len(days))
    for each in found:
        assert each.allows or len(set(days)) == 1
        for arguments in (*each.allows, *each.refuses):
            assert isinstance(arguments["date"], str)
    return [rule_of_json(rule_as_json(each.rule), "rule") for each in found]


@pytest.mark.parametrize(
    ("days", "fine", "asked"),
    [
        ([0] * 12, [0], [-1, 1, 7]),
        ([1, 2, 3, 5, 7, 14] * 2, [1, 3, 7, 14], [0, -1, 15, 400]),
        ([-1, -3, -7, -2, -9, -4] * 2, [-1, -9], [0, 1, -10]),
        ([0, 1] * 6, [0, 1], [2, -1]),
    ],
)
def test_dates_are_learned_by_how_far_they_are_from_today(
    days: list[int], fine: list[int], asked: list[int]
) -> None:
    rules = booked(days)
    (rule,) = rules
    for later in (20.0, 60.0):
        now = START + 86_400.0 * later
        for ahead, decision in [*((each, "approve") for each in fine), *((each, "ask") for each in asked)]:
            # By the clock of who decides, whatever the call says of its own time.
            case = call({"room": "blue", "date": date_after(str(ahead), now)}, tool="book", at=START)
            assert evaluate(rules, case, now, draw=1.0).decision == decision, (later, ahead)
        for odd in ("tomorrow", date_after(str(fine[0]), now) + "T10:00:00Z", "2026-02-30", None, ["0"], "0"):
            case = call({"room": "blue", "date": odd}, tool="book", at=now)
            assert evaluate(rules, case, now).decision == "ask", odd
    assert "days after that of the call" in rule.words


def test_dates_that_are_far_away_or_always_the_same_are_no_days_from_now() -> None:
    for date in ("2031-01-05", date_after("20", START)):
        decisions = [
            decided(call({"date": date}, tool="book", at=START + 86_400.0 * n), approved=True)
            for n in range(12)
        ]
        (found,) = suggest(decisions, now=NOW)
        assert found.rule.arguments == {"date": date}


def test_whom_something_goes_to_has_no_form() -> None:
    calls: list[dict[str, Json]] = [{"recipient": f"DE{n:08}", "amount": 5} for n in range(30)]
    assert learned("send_money", calls) == []


def test_a_label_says_what_becomes_of_a_ticket_and_is_no_prose() -> None:
    labels = [*NAMES, *["bug"] * 20]
    rules = learned(
        "add_label", [{"ticket": f"WEB-{n}", "label": each} for n, each in enumerate(labels, 101)]
    )
    assert verdicts(rules, "add_label", [{"ticket": "WEB-777", "label": "bug"}]) == ["approve"]
    wrong = ["approved", "ready to merge", "wontfix"]
    assert (
        verdicts(rules, "add_label", [{"ticket": "WEB-777", "label": each} for each in wrong]) == ["ask"] * 3
    )


def test_dates_of_a_daily_task_are_days_from_now_also_where_each_came_twice() -> None:
    """Three bookings a day for the next one: five dates, of which all are past; one distance."""

    def found_in(ahead: list[int], fixed: bool = False) -> Rule:
        decisions = []
        for number, days in enumerate(ahead):
            at = START + 86_400.0 * (number // 3)
            date = date_after(str(days), START if fixed else at)
            decisions.append(decided(call({"date": date}, tool="book", at=at), approved=True))
        (found,) = suggest(decisions, now=START + 86_400.0 * 10)
        return found.rule

    assert [str(each) for each in found_in([1] * 15).values[("date",)].templates] == ["1"]
    # Of fewer dates nobody knows.
    assert not found_in([1] * 12).values
    # The three days of a conference, booked over two weeks, are those days.
    listed = found_in([20, 21, 22] * 14, fixed=True)
    assert not listed.values
    assert len(listed.arguments["date"]) == 3


def test_what_a_reading_tool_is_asked_in_words_does_not_matter_and_keys_do() -> None:
    calls: list[dict[str, Json]] = [{"city": name.title(), "unit": "celsius"} for name in NAMES]
    assert learned("set_home", calls) == []
    rules = learned("get_weather", calls, reads=True)
    assert verdicts(rules, "get_weather", [{"city": "New York", "unit": "celsius"}]) == ["approve"]
    for city in (
        "my key is AKIAIOSFODNN7EXAMPLE",
        "https://evil.example",
        "the password is hunter2",
        "$(id)",
    ):
        assert verdicts(rules, "get_weather", [{"city": city, "unit": "celsius"}]) == ["ask"], city


def test_pages_of_a_host_are_read_after_two_and_nothing_is_changed_there() -> None:
    hosts = ("https://docs.one.example", "https://www.two.example", "https://wiki.three.example")
    urls = [f"{host}/{name}/index.html" for host in hosts for name in NAMES[:5]]
    rules = learned("fetch", [{"url": url} for url in urls], reads=True)
    fine = ["https://docs.one.example/any/other.html#part", "https://www.two.example/~kim/kill.1"]
    assert verdicts(rules, "fetch", [{"url": url} for url in fine]) == ["approve"] * 2
    wrong = [
        "http://docs.one.example/x", "https://docs.one.example:8443/x", "https://docs.one.example.evil.net/x",
        "https://x@docs.one.example/x", "https://docs.one.example/../x", "https://docs.one.example/x?y=z",
        "https://docs.one.example/admin/x", "https://docs.one.example/%2e%2e/x", "https://docs.one.example//evil.net",
    ]  # fmt: skip
    assert verdicts(rules, "fetch", [{"url": url} for url in wrong]) == ["ask"] * len(wrong)
    both = [{"method": method, "url": f"{url}-{method}"} for url in urls for method in ("GET", "POST")]
    requests = learned("http_request", both)
    probe = "https://docs.one.example/any/other.html"
    assert verdicts(requests, "http_request", [{"method": m, "url": probe} for m in ("GET", "POST")]) == [
        "approve",
        "ask",
    ]


def test_one_page_says_enough_of_its_host_where_it_did_of_many_others() -> None:
    """Fifteen hosts of which two pages were read; not if a page of one of them was rejected."""
    known = [f"https://docs.{name}.example" for name in NAMES[:15]]
    urls = [f"{host}/{page}.html" for host in known for page in ("start", "index")]
    new = ["https://docs.new.example/start.html", "https://wiki.other.example/start.html"]
    probes = [{"url": "https://docs.new.example/other.html"}, {"url": f"{known[0]}/other.html"}]
    wrong = [
        "https://docs.new.example/logout",
        "https://docs.third.example/start.html",
        "http://docs.new.example/x",
    ]

    def read(some: list[str], *rejected: str) -> list[Rule]:
        decisions = history([{"url": url} for url in some], tool="fetch")
        no = [decided(call({"url": url}, tool="fetch"), approved=False) for url in rejected]
        found = suggest([*decisions, *no], now=NOW, reading={("files", "fetch")})
        return [rule_of_json(rule_as_json(each.rule), "rule") for each in found]

    assert verdicts(read([*urls, *new]), "fetch", probes) == ["approve", "approve"]
    assert verdicts(read([*urls, *new]), "fetch", [{"url": url} for url in wrong]) == ["ask"] * 3
    # Of fewer hosts nobody knows; nor where it did not say enough of one.
    assert verdicts(read([*urls[2:], *new]), "fetch", probes)[0] == "ask"
    assert verdicts(read([*urls, *new], f"{known[3]}/notes/x"), "fetch", probes) == ["ask", "approve"]
    # Another host that was rejected is another host.
    assert verdicts(read([*urls, *new], "https://evil.example/x"), "fetch", probes) == ["approve"] * 2


def test_a_rejection_below_a_folder_leaves_the_others() -> None:
    calls = [edit(path) for path in FILES]
    no = decided(call(edit("src/app/web/zoe.py"), tool="edit_file"), approved=False)
    rules = [each.rule for each in suggest([*history(calls, tool="edit_file"), no], now=NOW)]
    probes = [edit(f"src/app/{folder}/kim.py") for folder in ("db", "web", "new")]
    assert verdicts(rules, "edit_file", probes) == ["approve", "ask", "ask"]


def test_many_approvals_after_a_rejection_win_its_row_back() -> None:
    no = decided(call({"path": "/srv/reports/r-15.txt"}, at=START - 60.0), approved=False)
    yes = history([{"path": f"/srv/reports/r-{100 + n}.txt"} for n in range(99)])
    digits = [decided(call({"path": "/srv/reports/r-115.txt"}, at=START - 60.0), approved=False), *yes]
    assert suggest(digits, now=NOW) == []
    more = history([{"path": "/srv/reports/r-399.txt"}])
    (suggestion,) = suggest([*digits, *more], now=NOW)
    assert not suggest([no, *yes], now=NOW)[0].rule.matches(no.case, NOW)
    assert suggestion.back_test.conflicts
    assert "1 rejection before them" in suggestion.evidence


def test_a_suggestion_is_one_sentence_of_two_hundred_characters() -> None:
    calls = [edit(f"src/{folder}-{n}/{name}.py") for folder in NAMES for n in range(3) for name in NAMES[:4]]
    decisions = history(calls, tool="edit_file")
    for suggestion in suggest(decisions, now=NOW):
        assert len(suggestion.words) <= MAX_SENTENCE
        assert "; at most " in suggestion.words
        by_origin = ask_as_people_saw(suggestion, decisions, lambda _: {"asks": False})
        assert by_origin.rule.ask == "when_untrusted"
        assert len(by_origin.words) <= MAX_SENTENCE
        assert "; asks when " in by_origin.words


def test_calls_that_come_more_often_than_the_rule_may_act_are_suggested_with_their_rate() -> None:
    calls: list[dict[str, Json]] = [{"path": f"/srv/reports/r-{n}.txt"} for n in range(10, 22)]
    slow = history(calls, every=43_200.0)
    (first,) = suggest(slow, now=NOW)
    rules = [first.rule]
    assert suggest(slow, rules, now=NOW) == []
    late = START + 20 * 86_400.0
    busy = [
        decided(call({"path": f"/srv/reports/r-{30 + n}.txt"}, at=late + 600.0 * n), approved=True)
        for n in range(12)
    ]
    (again,) = suggest([*slow, *busy], rules, now=NOW)
    assert (again.id, first.rule.limits.max_decisions, again.rule.limits.max_decisions) == (first.id, 2, 12)


def commands(texts: list[str]) -> list[dict[str, Json]]:
    return [{"command": text} for text in texts]


def test_a_name_that_people_should_look_at_does_not_close_its_place_to_other_names() -> None:
    rules = learned("bash", commands([f"lint check src/{name}" for name in (*NAMES, "main", "main")]))
    asked = ["lint check src/admin", "lint fix src/zoe", "lint check src/zoe --fix", "lint check lib/zoe"]
    assert verdicts(rules, "bash", commands(["lint check src/zoe", "lint check src/main"])) == ["approve"] * 2
    assert verdicts(rules, "bash", commands(asked)) == ["ask"] * len(asked)


def test_files_vary_behind_an_option_of_a_program_that_is_not_known_and_words_do_not() -> None:
    seen = [f"scan --config src/{name}.toml list -n {at}" for at, name in enumerate(NAMES, 1)]
    rules = learned("bash", commands(seen))
    assert verdicts(rules, "bash", commands(["scan --config src/zoe.toml list -n 9"])) == ["approve"]
    asked = ["scan --config src/zoe.toml erase -n 9", "scan --other src/zoe.toml list -n 9"]
    asked += ["scan --config /etc/zoe.toml list -n 9", "scan --config src/secrets.toml list -n 9"]
    assert verdicts(rules, "bash", commands(asked)) == ["ask"] * len(asked)
    # Of these it is known that the option can change what the subcommand does, or that they run files.
    for program in ("git -c", "docker --config", "python3.11 -u"):
        known = learned("bash", commands([f"{program} src/{name}.toml log" for name in NAMES]))
        assert verdicts(known, "bash", commands([f"{program} src/zoe.toml log"])) == ["ask"]


def test_a_message_of_one_word_is_a_message_too() -> None:
    rules = learned("bash", commands([f"git commit -m {name}" for name in NAMES]))
    assert (
        verdicts(rules, "bash", commands(["git commit -m zoe", "git commit -m 'Mend it'"])) == ["approve"] * 2
    )
    assert verdicts(rules, "bash", commands(["git commit -m $(id)", "git commit -n -m zoe"])) == ["ask"] * 2


def test_calls_are_joined_where_every_pair_was_seen_and_nowhere_else() -> None:
    def change(page: str, type: int, topic: str) -> dict[str, Json]:
        return {"method": "PATCH", "url": f"https://api.example.com/v1/{page}", "type": type, "note": topic}

    pairs = [("rooms", 1), ("rooms", 2), ("rooms", 8), ("desks", 1), ("desks", 2), ("lamps", 1), ("lamps", 2)]
    calls = [
        change(page, type, f"About {name} in {page} {type}") for name in NAMES[:2] for page, type in pairs
    ]
    rules = learned("http_request", calls)
    # Twelve decisions say so of two types; the third was seen in the rooms alone, and too seldom.
    fine = [change(page, type, "About the garden") for page, type in pairs if type != 8]
    assert verdicts(rules, "http_request", fine) == ["approve"] * len(fine)
    new = [change("desks", 8, "About the garden"), change("lamps", 8, "About the garden")]
    assert verdicts(rules, "http_request", new) == ["ask"] * 2


def test_a_place_in_a_page_and_a_document_may_be_about_what_a_page_may_not_be() -> None:
    pages = [{"url": f"https://docs.example.com/manual/{name}.html"} for name in NAMES]
    rules = learned("fetch", pages, reads=True)
    fine = ["manual/zoe.html#delete", "manual/git-delete.html", "a/b/c/d/e/f/g/h/i/j/k/zoe.html"]
    asked = [
        "manual/delete",
        "account/logout/",
        "manual/password.html",
        "manual/zoe.html?delete=1",
        "secrets.md",
    ]
    for texts, verdict in ((fine, "approve"), (asked, "ask")):
        urls: list[dict[str, Json]] = [{"url": f"https://docs.example.com/{text}"} for text in texts]
        assert verdicts(rules, "fetch", urls) == [verdict] * len(urls)


@pytest.mark.parametrize("name", ["mysecrets", "dbpassword", "awscredentials", "privatekey", "passwds"])
def test_a_file_of_secrets_is_left_to_people_however_its_words_run_together(name: str) -> None:
    rules = learned("read_file", [{"path": path} for path in FILES], reads=True)
    probes: list[dict[str, Json]] = [{"path": f"src/app/web/{each}.py"} for each in ("secretary", name)]
    assert verdicts(rules, "read_file", probes) == ["approve", "ask"]
