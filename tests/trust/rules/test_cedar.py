"""Cedar policies beside the rules: forbid rejects, permit approves, and whatever is not known asks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bench.cedar_agreement import compare

from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.trust.history.proposal_case import Case, case_of
from moot.trust.rules.cedar_policies import CedarPolicies, CedarVerdict, request_of
from moot.trust.rules.rule_store import RuleStore
from tests.trust.approver.test_approver import approver_scene
from tests.trust.histories import call
from tests.waiting import until

POLICIES = """
@id("reports") @limits("{count: 2, per: 1h}")
permit(principal == Member::"agent", action == Action::"tools/call/write_file", resource == Host::"files")
when { context.arguments.path like "reports/*" };

@id("no-secrets")
forbid(principal, action in Action::"tools/call", resource)
when { context.arguments has path && context.arguments.path like "*secret*" };
"""


def policies(tmp_path: Path, text: str) -> CedarPolicies:
    (tmp_path / "p.cedar").write_text(text)
    return CedarPolicies(tmp_path, ["p.cedar"])


def names(found: CedarVerdict) -> tuple[list[str], list[str]]:
    assert found.fault is None, found.fault
    return [rule.name for rule in found.forbids], [rule.name for rule in found.permits]


def test_forbid_wins_and_what_nobody_permits_is_left(tmp_path: Path) -> None:
    read = policies(tmp_path, POLICIES)
    assert names(read.judge(call({"path": "reports/a.md"}), None)) == ([], ["cedar.reports"])
    assert names(read.judge(call({"path": "reports/secret.md"}), None)) == (["cedar.no-secrets"], [])
    assert names(read.judge(call({"path": "b"}), None)) == ([], [])
    assert [(rule.decision, rule.limits.max_decisions) for rule in read.rules] == [
        ("approve", 2),
        ("reject", None),
    ]


def test_a_forbid_that_only_observes_hides_no_permit(tmp_path: Path) -> None:
    text = POLICIES.replace('@id("no-secrets")', '@id("no-secrets") @observe("true")')
    read = policies(tmp_path, text)
    case = call({"path": "reports/secret.md"})
    assert names(read.judge(case, None)) == (["cedar.no-secrets"], ["cedar.reports"])
    both = policies(tmp_path, text + "forbid(principal, action, resource) when { context.origins.asks };")
    assert names(both.judge(case, "nobody said this")) == (["cedar.no-secrets", "cedar.p-3"], [])
    assert names(both.judge(call({"path": "reports/a.md"}), None)) == ([], ["cedar.reports"])


def test_origins_are_in_the_context_and_what_is_not_known_asks(tmp_path: Path) -> None:
    read = policies(tmp_path, "permit(principal, action, resource) unless { context.origins.asks };")
    case = call({"path": "a"})
    assert names(read.judge(case, None)) == ([], ["cedar.p-1"])
    assert names(read.judge(case, "nobody said this")) == ([], [])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"n": 0.00001}, "has no form"),
        ({"n": 2**63}, "has no form"),
        ({"n": {"__entity": {"type": "Member", "id": "alice"}}}, "__entity"),
        ({"__extn": {"fn": "decimal", "arg": "1.0"}}, "__extn"),
        ({"n": "\ud800"}, "surrogates"),
        ({"n": [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]}, "has no form"),
    ],
)
def test_what_cannot_be_said_in_cedar_asks(tmp_path: Path, arguments: Json, why: str) -> None:
    read = policies(tmp_path, "permit(principal, action, resource);")
    found = read.judge(call(arguments), None)
    assert found.permits == ()
    assert found.fault is not None
    assert why in found.fault


def test_a_call_for_several_hosts_or_with_more_than_arguments_asks(tmp_path: Path) -> None:
    read = policies(tmp_path, "permit(principal, action, resource);")
    case = call({"path": "a"})
    assert "not for one host" in str(read.judge(replace(case, to=("files", "mail")), None).fault)
    odd = case_of("p", "agent", ["files"], {"method": "tools/call", "params": {"name": "x", "task": {}}})
    assert "params.task" in str(read.judge(odd, None).fault)


def test_a_policy_that_fails_asks_unless_another_forbids(tmp_path: Path) -> None:
    failing = """permit(principal, action, resource);
    forbid(principal, action, resource) when { context.arguments.n < 3 };"""
    read = policies(tmp_path, failing)
    assert "a Cedar policy failed" in str(read.judge(call({"n": "text"}), None).fault)
    assert names(read.judge(call({"n": 4}), None)) == ([], ["cedar.p-1"])
    also = policies(tmp_path, failing + "\nforbid(principal, action, resource);")
    assert names(also.judge(call({"n": "text"}), None)) == (["cedar.p-3"], [])


def test_numbers_lists_and_null_have_one_form() -> None:
    arguments = {"amount": 12.5, "to": ["a", None], "none": None, "yes": True, "n": 3}
    request, entities = request_of(call(arguments), None)
    assert request["context"]["arguments"] == {
        "amount": {"__extn": {"fn": "decimal", "arg": "12.5000"}},
        "to": ["a"],
        "yes": True,
        "n": 3,
    }
    assert request["action"] == {"type": "Action", "id": "tools/call/write_file"}
    assert entities[1]["parents"] == [{"type": "Action", "id": "tools/call"}]
    listing: Case = case_of("p", "agent", ["files"], {"method": "tools/list", "params": {}})
    assert request_of(listing, None)[0]["action"] == {"type": "Action", "id": "tools/list"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("permit(", "unexpected end of input"),
        ("permit(principal == ?principal, action, resource);", "templates"),
        ('@id("a b") permit(principal, action, resource);', "name must be"),
        ('@limit("1") permit(principal, action, resource);', "has @limit"),
        ('@limits("{count: 0, per: 1h}") permit(principal, action, resource);', "limits.count"),
        ('@id("a") permit(principal, action, resource);' * 2, "two policies"),
    ],
)
def test_a_file_that_cannot_be_read_stops_all_rules_and_says_why(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "rules.yaml").write_text(
        "cedar: [p.cedar]\nrules: [{name: all, decision: approve, tool: x}]\n"
    )
    (tmp_path / "p.cedar").write_text(text)
    tmp_path.chmod(0o700)
    store = RuleStore.open(tmp_path)
    assert [rule.name for rule in store.all_rules] == []
    assert why in str(store.fault)
    (tmp_path / "p.cedar").write_text(POLICIES)
    assert store.reload()
    assert store.fault is None
    assert [rule.name for rule in store.all_rules] == ["all", "cedar.reports", "cedar.no-secrets"]
    # The file is written by people and by the approver, which keeps what it names.
    store.set_rules(())
    assert "cedar:\n- p.cedar" in (tmp_path / "rules.yaml").read_text()


@pytest.mark.parametrize("name", ["../p.cedar", "/etc/passwd", "..", ""])
def test_policies_are_files_of_the_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "rules.yaml").write_text(f"cedar: ['{name}']\n")
    tmp_path.chmod(0o700)
    assert "must be the name of a file" in str(RuleStore.open(tmp_path).fault)
    with pytest.raises(UsageError, match="cannot be read"):
        CedarPolicies(tmp_path, ["missing.cedar"])


async def test_policies_decide_in_a_space_as_rules_do(tmp_path: Path) -> None:
    folder = tmp_path / "trust"
    folder.mkdir(mode=0o700)
    (folder / "rules.yaml").write_text("cedar: p.cedar\n")
    (folder / "p.cedar").write_text(POLICIES)
    async with approver_scene(tmp_path) as scene:
        scene.mood = "leave"
        assert await scene.write("reports/1.md") == "by approver"
        assert list(scene.approver.ledger)[-1].rule == "cedar.reports"
        assert await scene.write("reports/secret.md") == "no, approver: policy"
        assert list(scene.approver.ledger)[-1].rule == "cedar.no-secrets"
        assert await scene.write("reports/2.md") == "by approver"
        # Its limit is reached, and what nobody permits asks.
        scene.mood = "approve"
        assert await scene.write("reports/3.md") == "by alice"
        assert await scene.write("other.md") == "by alice"
        listed = scene.approver.status.trust_rules()["rules"]
        assert [(each["rule"]["name"], each["state"], each["hits"]) for each in listed] == [
            ("cedar.reports", "active", 2),
            ("cedar.no-secrets", "active", 1),
        ]
        first = next(iter(scene.approver.ledger)).id
        assert (
            "rule cedar.reports: Cedar policy reports" in scene.approver.status.trust_explain(first)["done"]
        )
        # A person objects to one of them.
        await scene.alice.send("trust/stop", {"rule": "cedar.no-secrets"}, confirm=True)
        await scene.wait_for("trust/rule", "suspended")
        assert await scene.write("reports/secret.md") == "by alice"
        await scene.alice.send("trust/accept", {"lift": "cedar.no-secrets"}, confirm=True)
        await until(lambda: scene.store.suspensions == {})
        # A changed text is told, and holds at once.
        (folder / "p.cedar").write_text(POLICIES.replace("*secret*", "*"))
        scene.mood = "leave"
        await until(lambda: any(each.payload.get("why") == "written in rules.yaml" for each in scene.trust))
        assert await scene.write("reports/9.md") == "no, approver: policy"


def test_both_engines_of_cedar_decide_alike() -> None:
    found = compare(300, 1, requests_of_a_set=10)
    assert found.total() == 300
    assert len(found) == 4
