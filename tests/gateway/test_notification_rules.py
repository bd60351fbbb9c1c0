"""The pure rules of notifications: when something is told, and that strangers' text stays text."""

from __future__ import annotations

import pytest

from moot.gateway.notifications.safe_text import shown, without_markup
from moot.gateway.notifications.schedule import Schedule, ScheduleRules


def schedule(*, per_minute: int = 6, separate: int = 3) -> Schedule:
    return Schedule(ScheduleRules(max_messages_per_minute=per_minute, max_separate_messages=separate))


def test_a_few_are_told_one_by_one_and_more_at_once_together() -> None:
    rules = schedule(separate=3)
    assert rules.next_messages([], 0.0) == []
    assert rules.next_messages(["a", "b", "c"], 0.0) == [["a"], ["b"], ["c"]]
    assert rules.next_messages(["a", "b", "c", "d"], 0.0) == [["a", "b", "c", "d"]]


def test_what_is_over_the_rate_waits_and_then_goes_together() -> None:
    rules = schedule(per_minute=2)
    rules.record_sent(0.0)
    # Room for one: two are one message.
    assert rules.next_messages(["a", "b"], 1.0) == [["a", "b"]]
    rules.record_sent(1.0)
    assert rules.next_messages(["c"], 59.9) == []
    assert rules.next_messages(["c", "d"], 60.0) == [["c", "d"]]
    assert rules.next_messages(["c", "d"], 61.0) == [["c"], ["d"]]


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
