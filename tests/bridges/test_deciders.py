"""Who can approve a call, in words for whoever waits for it."""

from __future__ import annotations

from moot.operations.text.call_text import describe_deciders


def test_people_are_named_and_whoever_applies_rules_is_not_one_of_them() -> None:
    assert describe_deciders(["alice", "approver"], "", "p1", {"approver"}).startswith(
        "It can be approved by alice. They decide in a shell with `moot approve p1`"
    )
    assert describe_deciders(["approver"], "", "p1", {"approver"}).startswith(
        "A rule may approve it; otherwise it waits for a person who can, and none is in the space now."
    )
    assert describe_deciders([], "", "p1").startswith("Nobody who can approve it is in the space now")
