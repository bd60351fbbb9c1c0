"""What the rules view says of each state of a rule, and its chart with nothing, one and ten thousand."""

from __future__ import annotations

from tests.console.conftest import PageAs

_TAGS = """async (cases) => {
  const { stateTag, leftText, periodText } = await import("/console/views/rules/rule-list.js");
  const { automationChart, axisEnd } = await import("/console/views/rules/automation-chart.js");
  const base = { stopped: null, fault: "", observe: false, budgetLeft: null, left: () => null };
  const chart = (days) => {
    const node = automationChart(days);
    document.body.append(node);
    const texts = (selector) => [...node.querySelectorAll(selector)].map((each) => each.textContent);
    const high = [...node.querySelectorAll("rect")].map((each) => Number(each.getAttribute("height")));
    return { counts: texts(".plot-counts span"), text: node.querySelector("figcaption p")?.textContent ?? node.textContent, high };
  };
  return {
    tags: cases.map(([state, record, isOnline, left]) => stateTag(
      { isOnline, record: { ...base, ...record, left: () => left } },
      { state, rule: { name: "r" } }).textContent),
    periods: ["1d", "1h", "15m", "90s", "2w", "x"].map(periodText),
    left: [leftText(0), leftText(10), leftText(10000)],
    axes: [1, 2, 3, 7, 14, 99, 101, 10000, 10001].map(axisEnd),
    nothing: chart([]), zero: chart([{ day: "2026-11-16", people: 0, rules: 0 }]),
    one: chart([{ day: "2026-11-16", people: 1, rules: 0 }]),
    many: chart([{ day: "2026-11-15", people: 1, rules: 9999 }, { day: "2026-11-16", people: 1, rules: 0 }]),
  };
}"""  # noqa: E501


def test_states_and_counts_are_said_as_they_are(page_as: PageAs) -> None:
    page = page_as("watcher", "rules", locale="en-GB")
    stopped = {"stopped": {"by": "maria", "why": "x"}}
    cases: list[tuple[list[object], str]] = [
        (["active", {}, True, None], "active"),
        (["active", {}, True, 3], "active"),
        (["active", {}, True, 0], "limit reached"),
        (["active", {"budgetLeft": 0}, True, 3], "limit reached"),
        (["active", {"observe": True}, True, 0], "only observes"),
        (["active", {}, False, 3], "not applied"),
        (["active", stopped, False, 3], "stopped"),
        (["active", {"fault": "unreadable"}, True, 3], "stopped"),
        (["suspended", stopped, True, 0], "suspended"),
        (["expired", {}, True, None], "expired"),
    ]
    found = page.evaluate(_TAGS, [case for case, _ in cases])
    assert found["tags"] == [word for _, word in cases]
    assert found["left"] == ["none left; people decide for now", "10 left", "10,000 left"]
    assert found["periods"] == ["day", "hour", "15 minutes", "90 seconds", "2 weeks", "x"]
    assert found["axes"] == [2, 2, 4, 8, 14, 100, 102, 10000, 10200]
    assert found["nothing"]["text"] == found["zero"]["text"] == "No decisions yet."
    assert found["one"]["counts"] == ["2", "1", "0"]
    assert found["one"]["text"] == "0\u00a0% of 1 decision was automatic."
    assert found["one"]["high"] == [80, 0]
    assert found["many"]["counts"] == ["10,000", "5,000", "0"]
    # Nearly all is not all.
    assert found["many"]["text"].startswith(
        "over\u00a099\u00a0% of 10,001 decisions were automatic; on 16 Nov 2026, "
    )
