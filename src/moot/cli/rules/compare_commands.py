"""The commands of `moot rules` that compare: `diff` two files, `replay` a file over the history of a
space."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moot.cli.journal.journal_folder import add_journal_options, journal_folder_of
from moot.cli.options.shared_options import add_json, add_time_range
from moot.cli.process import program
from moot.cli.process.table_output import print_table
from moot.cli.rules.rules_file import FILE_HELP, RulesFile, read_rules_file
from moot.errors import UsageError
from moot.operations.text.terminal_escape import printable
from moot.operations.text.text_table import TextTable
from moot.protocol.envelope import rfc3339

if TYPE_CHECKING:
    from moot.trust.checks.rule_diff import CallDifference, RuleChange
    from moot.trust.checks.rule_replay import ReplayedDecision
    from moot.trust.history.proposal_history import HistoryProposal

_DIFF_ABOUT: Final = """\
Tells which rules were added, removed, changed or moved, where a changed rule may match more than before, and
calls that the two files decide differently. The calls are made up from both files (the edges of their rules,
what an attacker would try, their tests), so each is a real difference, but there may be more. Exits with 0 if
the files hold the same rules, with 1 if not.
"""
_DIFF_EXAMPLES: Final = """\
  moot rules diff rules.yaml new.yaml
  git show HEAD:rules.yaml > old.yaml; moot rules diff old.yaml rules.yaml --json
"""
_REPLAY_ABOUT: Final = """\
Applies rules to every proposal in the journal of a space, each at its own time, with the Cedar policies and
remembered calls beside them, and tells what would have been different: what rules would have decided as
people did, against what people decided, or not any more. Limits are counted; suspensions, stops, the budget
and spot checks are not, and everybody counts as present. Exits with 1 if a rule would have decided against
people.
"""
_REPLAY_EXAMPLES: Final = """\
  moot rules replay                             the rules of this space over its own history
  moot rules replay new.yaml --since 30d
  moot rules replay new.yaml --old rules.yaml   only what the two files decide differently
"""
_SIGNS: Final = {"added": "+", "removed": "-", "changed": "~", "moved": "~"}
# Of each effect; --json has all of them.
_MAX_SHOWN: Final = 10


def add_actions(group: Any) -> None:
    """Add `diff` and `replay`."""
    diff = program.add_command(
        group, "diff", help="compare two rules files", about=_DIFF_ABOUT, examples=_DIFF_EXAMPLES
    )
    diff.add_argument("old", type=Path, metavar="OLD")
    diff.add_argument("new", type=Path, metavar="NEW")
    add_json(diff)
    diff.set_defaults(run=_diff)
    again = program.add_command(
        group,
        "replay",
        help="show what rules would have decided over the history",
        about=_REPLAY_ABOUT,
        examples=_REPLAY_EXAMPLES,
    )
    again.add_argument("file", nargs="?", type=Path, metavar="FILE", help=FILE_HELP)
    again.add_argument("--old", type=Path, metavar="FILE", help="other rules to compare with")
    add_journal_options(again)
    add_time_range(again)
    add_json(again)
    again.set_defaults(run=_replay)


def _diff(options: argparse.Namespace) -> int:
    from moot.trust.checks.rule_diff import compare_rules
    from moot.trust.checks.rule_tests import read_tests

    files = [read_rules_file(file) for file in (options.old, options.new)]
    tests = [test for each in files for test in read_tests(each.text)]
    calls = [(test.case, test.at) for test in tests]
    old, new = (each.read_all() for each in files)
    if not old.calls:
        # A copy of the file lies alone, and what people want again decides with it all the same.
        old = replace(old, remembered=new.remembered)
    found = compare_rules(old, new, time.time(), calls)
    if options.json:
        listed = [_call_as_json(each) for each in found.calls]
        print(json.dumps({"changes": [asdict(each) for each in found.changes], "calls": listed}))
    else:
        for change in found.changes:
            print(printable(_change_line(change)))
        if found.calls:
            print("decided differently, for example:")
        for each in found.calls:
            call = json.dumps(each.call, ensure_ascii=False)
            print(printable(f"  {each.old.decision} -> {each.new.decision}  {call}"))
            print(printable(f"      at {rfc3339(each.at)}: before, {each.old.why}; now, {each.new.why}"))
        if not found.changes:
            print("the same rules in the same order")
        elif not found.calls:
            print("no call was found that is decided differently; that does not prove that there is none")
    return 1 if found.changes else 0


def _change_line(change: RuleChange) -> str:
    line = f"{_SIGNS[change.change]} {change.rule} ({change.decision}): {change.change}"
    if change.fields:
        line += f" in {', '.join(change.fields)}"
        line += f"; may match more: {change.wider}" if change.wider else "; matches the same or less"
    return line


def _call_as_json(each: CallDifference) -> dict[str, Any]:
    sides = {
        side: {
            "decision": verdict.decision,
            "rule": None if verdict.rule is None else verdict.rule.name,
            "reason": verdict.why,
        }
        for side, verdict in (("old", each.old), ("new", each.new))
    }
    return {"call": each.call, "at": rfc3339(each.at), **sides}


def _replay(options: argparse.Namespace) -> int:
    from moot.trust.checks.rule_replay import differing
    from moot.trust.history.ledger_reader import read_ledger

    folder = journal_folder_of(options)
    file = options.file or Path(".moot", "trust", folder.parent.name, "rules.yaml")
    if options.file is None and not file.is_file():
        raise UsageError(f"name the rules file, since there is no {file}")
    rules_file = read_rules_file(file)
    old = None if options.old is None else read_rules_file(options.old)
    ledger = list(read_ledger(folder, now=time.time()))
    found, before = ([] if each is None else _replayed(each, ledger, options) for each in (rules_file, old))
    shown = found if old is None else differing(before, found)
    changed = [each for each in shown if old is not None or each.effect != "same"]
    counts = Counter(each.effect for each in shown)
    if options.json:
        fields = {
            "proposals": len(found),
            "effects": dict(counts),
            "rules": _by_rule(found),
            "changed": [each.as_json() for each in changed],
        }
        print(json.dumps(fields, ensure_ascii=False))
    else:
        _print_replay(found, changed, counts, compared=old is not None)
    return 1 if counts["contradicts"] else 0


def _replayed(
    rules_file: RulesFile, ledger: Sequence[HistoryProposal], options: argparse.Namespace
) -> list[ReplayedDecision]:
    from moot.trust.checks.rule_replay import replay

    return _within(replay(rules_file.read_all(), ledger), options)


def _within(found: Sequence[ReplayedDecision], options: argparse.Namespace) -> list[ReplayedDecision]:
    """Those of a time: limits are counted over the whole history all the same."""
    since, until = options.since or 0.0, options.until or float("inf")
    return [each for each in found if since <= each.decision.case.at < until]


def _by_rule(found: Sequence[ReplayedDecision]) -> dict[str, dict[str, int]]:
    rules: dict[str, Counter[str]] = {}
    for each in found:
        if each.verdict.rule is not None and each.verdict.decision != "ask":
            rules.setdefault(each.verdict.rule.name, Counter())[each.effect] += 1
    return {name: dict(counts) for name, counts in rules.items()}


def _print_replay(
    found: Sequence[ReplayedDecision],
    changed: Sequence[ReplayedDecision],
    counts: Counter[Any],
    *,
    compared: bool,
) -> None:
    from moot.trust.checks.rule_replay import EFFECTS

    decided = sum(each.verdict.decision != "ask" for each in found)
    print(f"{len(found)} proposals; rules decide {decided}, people {len(found) - decided}")
    if compared:
        print(f"{len(changed)} are decided otherwise than by the old rules")
    rows = [
        (
            name,
            *(
                str(counts.get(effect, 0))
                for effect in ("spared", "contradicts", "same", "decides_undecided")
            ),
        )
        for name, counts in _by_rule(found).items()
    ]
    if rows:
        headings = ("RULE", "AS PEOPLE", "AGAINST PEOPLE", "AS BEFORE", "UNDECIDED")
        print_table(TextTable(headings, rows, right={1, 2, 3, 4}))
    for effect, words in EFFECTS.items():
        if not counts[effect] or (effect == "same" and not compared):
            continue
        print(f"{counts[effect]} {words}:")
        of_effect = [each for each in changed if each.effect == effect]
        for each in of_effect[:_MAX_SHOWN]:
            case = each.decision.case
            call = (
                f"{case.proposer} {case.tool or case.method} {json.dumps(case.arguments, ensure_ascii=False)}"
            )
            print(printable(f"  {case.id}  {call}"))
            print(printable(f"      {each.verdict.decision}: {each.verdict.why}"))
        if len(of_effect) > _MAX_SHOWN:
            print(f"  and {len(of_effect) - _MAX_SHOWN} more; --json has them all")
