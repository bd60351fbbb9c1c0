"""Rules: the first that matches decides, and asking is what is left."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moot.mcp.eras import CLIENT_CAPABILITIES_KEY, CLIENT_ERA_KEY, LOG_LEVEL_KEY
from moot.protocol.operation import Json
from moot.trust.history.proposal_case import case_of
from moot.trust.rules.conditions import Hours, Range, RangeByText, is_plain, is_same_json, read_hours
from moot.trust.rules.rule import Rule, RuleLimits, RuleOrigin
from moot.trust.rules.rule_evaluation import evaluate
from moot.trust.rules.rule_samples import sample_call
from tests.rows import for_each_row
from tests.trust.histories import HOUR, START, call

CLIENT: dict[str, Json] = {LOG_LEVEL_KEY: "info", CLIENT_ERA_KEY: "handshake"}
REPORTS = Rule(
    name="reports",
    decision="approve",
    proposer="agent",
    to=("files",),
    method="tools/call",
    tool="write_file",
    arguments={"path": "/srv/reports/*", "mode": ["create", "append"]},
)


def _write(path: Json = "/srv/reports/a.txt", mode: Json = "create", **more: Json) -> dict[str, Json]:
    return {"path": path, "mode": mode, **more}


def _decision(rules: list[Rule], arguments: dict[str, Json], **more: Json) -> str:
    return evaluate(rules, call(arguments, **more), START).decision


def test_what_fits_is_approved_and_all_else_is_asked() -> None:
    assert _decision([REPORTS], _write()) == "approve"
    assert evaluate([], call(_write()), START).why == "no rule matches"
    for arguments in (_write("/srv/other/a.txt"), _write(mode="delete"), {"path": "/srv/reports/a.txt"}):
        assert _decision([REPORTS], arguments) == "ask"
    others: tuple[dict[str, Json], ...] = (
        {"proposer": "other"},
        {"to": ["db"]},
        {"tool": "read_file"},
        {"to": []},
    )
    for more in others:
        assert _decision([REPORTS], _write(), **more) == "ask"


def test_an_argument_that_no_rule_names_keeps_it_from_being_approved() -> None:
    assert _decision([REPORTS], _write(force=True)) == "ask"
    assert _decision([replace(REPORTS, extra_arguments=True)], _write(force=True)) == "approve"
    nested = Rule(name="n", decision="approve", arguments={"where": {"path": "a"}})
    assert _decision([nested], {"where": {"path": "a"}}) == "approve"
    assert _decision([nested], {"where": {"path": "a", "as": "root"}}) == "ask"


def test_params_beside_the_arguments_are_nothing_that_a_rule_can_approve() -> None:
    params = {"name": "write_file", "arguments": _write()}
    assert evaluate([REPORTS], call(params=params), START).decision == "approve"
    assert evaluate([REPORTS], call(params=params | {"task": {"ttl": 1}}), START).decision == "ask"
    assert evaluate([REPORTS], call(params=params | {"_meta": {"x/y": 1}}), START).decision == "ask"
    assert (
        evaluate([REPORTS], call(params=params | {"_meta": {"progressToken": 1}}), START).decision
        == "approve"
    )
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for meta, decision in (
        ({"traceparent": trace, "tracestate": "a=1"}, "approve"),
        ({"traceparent": "rm -rf /"}, "ask"),
        ({"traceparent": trace, "tracestate": "x" * 513}, "ask"),
        # As `moot mcp` sends it for clients of the handshake era; the second may give the tool more.
        (CLIENT | {CLIENT_CAPABILITIES_KEY: {}}, "approve"),
        (CLIENT | {CLIENT_CAPABILITIES_KEY: {"elicitation": {}}}, "ask"),
        (CLIENT | {LOG_LEVEL_KEY: "rm -rf /"}, "ask"),
        (CLIENT | {LOG_LEVEL_KEY: ["info"]}, "ask"),
    ):
        assert evaluate([REPORTS], call(params=params | {"_meta": meta}), START).decision == decision
    assert evaluate([REPORTS], call(params={"name": "write_file", "arguments": []}), START).decision == "ask"


def test_a_rejecting_rule_sees_through_more_than_an_approving_one() -> None:
    rejecting = replace(REPORTS, name="no", decision="reject")
    assert _decision([rejecting], _write(force=True)) == "reject"


def test_the_first_match_wins() -> None:
    asking = Rule(name="ask", decision="ask", tool="write_file", method="tools/call")
    assert _decision([asking, REPORTS], _write()) == "ask"
    assert _decision([REPORTS, asking], _write()) == "approve"


def test_reject_beats_approve_at_the_same_width_and_only_there() -> None:
    as_wide = replace(
        REPORTS, name="no", decision="reject", arguments={"path": "/srv/*", "mode": ["create", "x"]}
    )
    verdict = evaluate([REPORTS, as_wide], call(_write()), START)
    assert (verdict.decision, verdict.rule) == ("reject", as_wide)
    wider = Rule(name="all", decision="reject", tool="write_file")
    assert _decision([REPORTS, wider], _write()) == "approve"


@for_each_row(
    "path",
    [
        "/srv/reports/../../etc/passwd",
        "/srv/reports/..",
        "/srv/reports/./a",
        "/srv/reports//a",
        "/srv/reports/%2e%2e/a",
        "/srv/reports/..%2fa",
        "/srv/reports/..\\a",
        "/srv/reports/a\0.txt",
        "/srv/reports/\uff0e\uff0e/a",  # full-width dots
        "/srv/reports/\u2025/a",  # a two-dot leader, which normalises to two dots
        "/srv/reports/a\u202etxt.exe",  # right-to-left override
        "/srv/reports/a\u200b",  # zero width
        "/srv/reports/a\n",
        "/SRV/reports/a",
        "/srv/report\u0455/a",  # a Cyrillic s
        "/srv/reports",
        ["/srv/reports/a.txt"],
        None,
        {"a": "/srv/reports/a.txt"},
        1,
    ],
)
def test_a_wildcard_of_an_approving_rule_takes_plain_texts_only(path: Json) -> None:
    assert _decision([REPORTS], _write(path)) == "ask"


def test_what_is_written_out_is_meant_as_it_is() -> None:
    rule = replace(REPORTS, arguments={"path": "/srv/../a%20b", "mode": "create"})
    assert _decision([rule], _write("/srv/../a%20b")) == "approve"


def test_ranges_take_numbers_of_their_own_kind_only() -> None:
    rule = Rule(name="pay", decision="approve", range={("amount",): Range(1, 100)})
    for amount in (1, 50, 100):
        assert _decision([rule], {"amount": amount}) == "approve"
    for odd in (0, 101, 50.5, 100.0, True, "50", None, [50], 10**30, -1):
        assert _decision([rule], {"amount": odd}) == "ask", odd
    assert [Range(0.5, 2.0).admits(value) for value in (1, True)] == [True, False]


@pytest.mark.parametrize("arguments", [{"payee": ["ACME", "Beta"]}, {"payee": "*"}, {}])
def test_each_payee_may_have_a_range_of_its_own(arguments: dict[str, Json]) -> None:
    by = {"ACME": Range(1, 300), "Beta": Range(5, 10)}
    rule = Rule(
        name="pay",
        decision="approve",
        arguments=arguments,
        range={("amount",): RangeByText.over("payee", by)},
    )
    assert rule.matches(sample_call(rule), 0.0)
    for payee, amount, decision in (
        ("ACME", 300, "approve"),
        ("Beta", 10, "approve"),
        ("Beta", 11, "ask"),
        ("ACME", 5.5, "ask"),
        ("Other", 5, "ask"),
        (None, 5, "ask"),
        (["Beta"], 5, "ask"),
    ):
        assert _decision([rule], {"payee": payee, "amount": amount}) == decision, (payee, amount)
    assert _decision([rule], {"amount": 5}) == "ask"


def test_a_range_may_stand_inside_an_object() -> None:
    rule = Rule(name="pay", decision="approve", range={("order", "amount"): Range(1, 100)})
    assert _decision([rule], {"order": {"amount": 5}}) == "approve"
    assert _decision([rule], {"order": {"amount": 5, "to": "me"}}) == "ask"
    assert _decision([rule], {"order": 5}) == "ask"


def test_exact_values_are_the_same_json() -> None:
    rule = Rule(name="tags", decision="approve", equals={"tags": ["a", 1]})
    assert _decision([rule], {"tags": ["a", 1]}) == "approve"
    for other in (["a", 1.0], ["a", True], [1, "a"], ["a"], "a"):
        assert _decision([rule], {"tags": other}) == "ask"
    assert is_same_json({"a": 1, "b": 10**30}, {"b": 10**30, "a": 1})


def test_hours_go_past_midnight_and_know_zones() -> None:
    day, night = read_hours("09:00-17:00"), read_hours("22:30-05:00")
    at = START - 10 * HOUR  # midnight
    assert [day.admits(at + h * HOUR) for h in (8, 9, 16, 17.02, 23)] == [False, True, True, False, False]
    assert [night.admits(at + h * HOUR) for h in (22, 23, 3, 5.5)] == [False, True, True, False]
    berlin = read_hours("09:00-17:00 Europe/Berlin")
    assert [berlin.admits(at + h * HOUR) for h in (8, 16.5)] == [True, False]
    assert str(berlin) == "09:00-17:00 Europe/Berlin"
    rule = replace(REPORTS, hours=Hours(9 * 60, 17 * 60))
    assert evaluate([rule], call(_write()), at + 3 * HOUR).decision == "ask"


def test_before_and_after_bound_a_rule_in_time() -> None:
    rule = replace(REPORTS, after=START, before=START + HOUR)
    assert [evaluate([rule], call(_write()), START + t).decision for t in (-1, 0, HOUR)] == [
        "ask",
        "approve",
        "ask",
    ]


def test_a_used_up_limit_asks_and_no_wider_rule_undoes_it() -> None:
    limited = replace(REPORTS, limits=RuleLimits(max_decisions=2, per_seconds=60.0))
    wider = Rule(name="wider", decision="approve", extra_arguments=True)
    acts = {"reports": [START - 50.0, START - 10.0]}
    verdict = evaluate([limited, wider], call(_write()), START, times=acts)
    assert (verdict.decision, verdict.rule) == ("ask", limited)
    assert "2 decisions" in verdict.why
    assert evaluate([limited], call(_write()), START + 20, times=acts).decision == "approve"


def test_a_learned_limit_says_how_far_the_evidence_goes_and_the_next_rule_decides() -> None:
    learned = replace(
        REPORTS, limits=RuleLimits(max_decisions=1, per_seconds=60.0), origin=RuleOrigin("s-1", "alice")
    )
    by_origin = Rule(name="by-origin", decision="approve", extra_arguments=True, ask="when_untrusted")
    acts = {"reports": [START - 10.0]}

    def verdict(*rules: Rule, untrusted: str | None = None) -> tuple[str, str]:
        found = evaluate(rules, call(_write()), START, times=acts, untrusted=untrusted)
        return found.decision, found.why

    assert verdict(learned, by_origin) == ("approve", "rule by-origin matches")
    assert verdict(learned, by_origin, untrusted="a mail said it")[1] == "rule by-origin asks: a mail said it"
    # With nothing behind it, people hear of the limit.
    assert "reached its limit of 1 decisions" in verdict(learned)[1]
    # A limit that a person gave it is one.
    limited = replace(learned, origin=replace(learned.origin, limited_by="alice"))
    assert verdict(limited, by_origin)[0] == "ask"
    # To reject less often is not to approve.
    assert verdict(replace(learned, decision="reject"), by_origin)[0] == "ask"


def test_a_rule_for_when_somebody_is_here_asks_when_they_are_not() -> None:
    rule = replace(REPORTS, limits=RuleLimits(while_present=("alice",)))
    assert evaluate([rule], call(_write()), START, {"alice"}).decision == "approve"
    assert evaluate([rule], call(_write()), START, {"bob"}).why.endswith("alice is not present")


def test_an_expired_rule_is_not_there_and_a_suspended_one_asks() -> None:
    expired = replace(REPORTS, limits=RuleLimits(expires_at=START))
    assert evaluate([expired], call(_write()), START).rule is None
    verdict = evaluate([REPORTS], call(_write()), START, suspended={"reports": "alice said no"})
    assert (verdict.decision, verdict.why) == ("ask", "rule reports is suspended: alice said no")


def test_nobody_approves_their_own_and_some_are_left_to_people() -> None:
    assert evaluate([REPORTS], call(_write()), START, me="agent").decision == "ask"
    checked = replace(REPORTS, limits=RuleLimits(check_share=0.1))
    assert evaluate([checked], call(_write()), START, draw=0.05).decision == "ask"
    assert evaluate([checked], call(_write()), START, draw=0.5).decision == "approve"


def test_a_proposal_without_a_host_needs_a_rule_that_says_so() -> None:
    nobody = replace(REPORTS, to=())
    assert _decision([nobody], _write(), to=[]) == "approve"
    assert _decision([nobody], _write()) == "ask"


def test_misfits_name_the_parts() -> None:
    misfits = REPORTS.mismatches(call(_write("/etc/x", force=1), proposer="eve"), START)
    assert misfits == ("proposer", "arguments.path", "extra argument force")


_values: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["method", "params", "x"]), _values))
def test_whatever_a_proposal_holds_it_is_never_approved_by_accident(
    payload: dict[str, Json],
) -> None:
    case = case_of("p", "agent", ("files",), payload, at=START)
    assert evaluate([REPORTS], case, START).decision == "ask"


@settings(deadline=None)
@given(_values)
def test_whatever_stands_in_an_argument_only_a_plain_path_of_the_folder_is_approved(value: Json) -> None:
    approved = _decision([REPORTS], _write(value)) == "approve"
    assert approved == (isinstance(value, str) and value.startswith("/srv/reports/") and is_plain(value))


@settings(deadline=None)
@given(st.text())
def test_a_plain_text_hides_nothing(text: str) -> None:
    if is_plain(text):
        assert not any(char in text for char in "\\%\0\n\u200b\u202e")
        assert ".." not in text.split("/")
