"""Whoever earns a rule and tries its edges gets what the rule says and no more; all of it in `make soak`."""

from __future__ import annotations

from moot.protocol.operation import Json
from tests.trust.learning.rule_mutants import Meaning, mutant_worlds, run_mutants
from tests.trust.learning.value_probes import approved_attacks, run_probes


def test_nothing_is_approved_beyond_what_the_templates_say() -> None:
    assert run_probes(2_000, 19).endswith("none beyond what was earned")


def test_no_attack_is_approved_by_somebody_who_knows_the_tools() -> None:
    assert approved_attacks() == []


def test_no_mutant_of_what_is_approved_does_more_by_what_others_make_of_it() -> None:
    assert run_mutants(1_800, 23).endswith("none does more than was approved")


# Of each world one call that does more than what was approved, by a little.
WORSE: dict[str, dict[str, Json]] = {
    "shell": {"command": "git push --force origin adak"},
    "sql": {"query": "SELECT id, total FROM orders WHERE id >= 3"},
    "pages": {"url": "https://docs.one.example\\@evil.net/adak/index.html"},
    "requests": {
        "method": "POST",
        "url": "https://api.corp.example/v1/users/1000",
        "body": {"topic": "x", "type": 1},
    },
    "reads": {"path": "/srv/app/src/app/web%2f..%2fadakweb.py"},
    "edits": {"path": "src/app/web/setup.py", "old_string": "x", "new_string": "y"},
    "patches": {"patch": "diff --git a/x.py b/x.py\nnew file mode 100644\nindex 0000000..e69de29\n"},
    "pairs": {"source": "/srv/app/docs/adak0.md", "destination": "/backup/notes/adak0.md"},
    "mail": {"to": ["adak@corp.example", "Ada <adak@evil.net>"], "subject": "Plan of adak for May"},
    "payments": {"payee": "acme", "amount": 115.01, "currency": "EUR", "invoice": "INV-2026-00100"},
    "lists": {"ticket": "WEB-100", "labels": ["ui", "bug", "docs"]},
    "days": {"date": "2026-02-28"},
}


def test_each_judge_sees_what_was_not_approved() -> None:
    with mutant_worlds() as worlds:
        assert worlds.keys() == WORSE.keys()
        for name, world in worlds.items():
            seen = Meaning()
            for arguments in world.calls:
                seen.add(world.meaning_of(arguments))
            assert world.meaning_of(world.calls[0]).beyond(seen) == []
            assert world.meaning_of(WORSE[name]).beyond(seen), name
