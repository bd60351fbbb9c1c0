"""The pure rules of notifications: when something is told, and that strangers' text stays text."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from moot.gateway.notifications.message import compose, describe, lines_of, shown, title_of, without_markup
from moot.gateway.notifications.recipients import Subject
from moot.gateway.notifications.schedule import QuietTimes, Schedule
from moot.space.config import Name
from moot.space.proposals.proposal_ledger import ProposalRecord
from tests.rows import for_each_row


def messages(rules: Schedule, due: str, now: float, wall: float = 0.0) -> list[list[str]]:
    return rules.next_messages(dict.fromkeys(due, wall), now=now, wall=wall)


def test_a_few_are_told_one_by_one_and_more_at_once_together() -> None:
    rules = Schedule()
    assert messages(rules, "", 0.0) == []
    assert messages(rules, "abc", 0.0) == [["a"], ["b"], ["c"]]
    assert messages(rules, "abcd", 0.0) == [["a", "b", "c", "d"]]


def test_what_is_over_the_rate_waits_and_then_goes_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.gateway.notifications.schedule.MAX_MESSAGES_PER_MINUTE", 2)
    rules = Schedule()
    rules.record_sent(0.0)
    # Room for one: two are one message.
    assert messages(rules, "ab", 1.0) == [["a", "b"]]
    rules.record_sent(1.0)
    assert messages(rules, "c", 59.9) == []
    assert messages(rules, "cd", 60.0) == [["c", "d"]]
    assert messages(rules, "cd", 61.0) == [["c"], ["d"]]


def at(text: str, zone: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def test_quiet_hours_go_past_midnight_and_by_the_clock_of_their_zone() -> None:
    berlin = QuietTimes("22:00", "07:00", ZoneInfo("Europe/Berlin"))
    for time, quiet in [
        ("21:59", False),
        ("22:00", True),
        ("00:00", True),
        ("06:59", True),
        ("07:00", False),
    ]:
        # In winter, and on both days on which the clock is set.
        for day in ("2026-01-15", "2026-03-29", "2026-10-25"):
            assert berlin.contain(at(f"{day}T{time}", "Europe/Berlin")) == quiet, (day, time)
    assert not berlin.contain(at("2026-01-15T22:30", "America/New_York") - 8 * 3600)
    lunch = QuietTimes("12:00", "13:00", ZoneInfo("UTC"))
    assert [lunch.contain(at(f"2026-01-15T{each}", "UTC")) for each in ("11:59", "12:30", "13:00")] == [
        False,
        True,
        False,
    ]


def test_what_became_due_in_quiet_hours_goes_out_together_afterwards() -> None:
    quiet = QuietTimes("22:00", "07:00", ZoneInfo("UTC"))
    rules = Schedule(quiet)
    night, morning = at("2026-01-15T23:00", "UTC"), at("2026-01-16T07:00", "UTC")
    assert rules.next_messages({"a": night}, now=0.0, wall=night) == []
    assert rules.next_messages({"a": night, "b": night}, now=0.0, wall=morning - 1) == []
    assert rules.next_messages({"a": night, "b": morning}, now=0.0, wall=morning) == [["a", "b"]]
    assert rules.next_messages({"a": morning, "b": morning}, now=0.0, wall=morning) == [["a"], ["b"]]


@for_each_row(
    ("text", "seen"),
    [
        ("write_file", "write_file"),
        ("v1.2", "v1.2"),
        ("a\r\nBcc: x@evil.org", "a\\u000d\\u000aBcc: x[at]evil[.]org"),
        ("https://evil.org/a?b", "https[:]//evil[.]org/a?b"),
        ("HTTP://EVIL.ORG", "HTTP[:]//EVIL[.]ORG"),
        ("www.evil.org", "www[.]evil[.]org"),
        ("http://10.0.0.1/", "http[:]//10[.]0[.]0.1/"),
        ("mailto:x", "mailto[:]x"),
        ("evil\u3002org", "evil\\u3002org"),
        ("@channel", "[at]channel"),
        ("a\u202eb\u200bc\u200dd", "a\\u202eb\\u200bc\\u200dd"),
        ("a\u2028b", "a\\u2028b"),
        ("a   \u3000 b", "a b"),
        ("x" * 200, "x" * 127 + "…"),
    ],
)
def test_a_strangers_text_is_one_line_without_links_mentions_and_hidden_signs(text: str, seen: str) -> None:
    assert shown(text) == seen


@for_each_row(
    ("text", "seen"),
    [
        ("write_file", "write_file"),
        ("_it_", "\\u005fit\\u005f"),
        ("*bold*", "\\u002abold\\u002a"),
        ("<!channel>", "\\u003c!channel\\u003e"),
        ("<https[:]//x|y>", "\\u003chttps[:]//x\\u007cy\\u003e"),
        ("[a](b)", "[a\\u005d(b)"),
        ("`code`", "\\u0060code\\u0060"),
        ("&lt;", "\\u0026lt;"),
    ],
)
def test_where_markdown_is_read_its_signs_are_visible_escapes(text: str, seen: str) -> None:
    assert without_markup(text) == seen


def test_the_name_of_a_space_that_somebody_made_by_joining_is_no_link_either() -> None:
    record = ProposalRecord("p1", Name("agent"), (), "", 9.0, proposed_at=1.0)
    subjects = [Subject("evil.example", "proposal.pending", number, "p1") for number in (1, 2)]
    entries = [describe(each, record, public_url=None, max_argument_chars=None) for each in subjects]
    for count in (1, 2):
        message = compose("phone", "maria", subjects[:count], entries[:count], None)
        assert "evil.example" not in "\n".join([title_of(message), *lines_of(message)])
