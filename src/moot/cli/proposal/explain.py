"""`moot proposal explain`: why something was or was not done."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moot.cli.journal.journal_folder import add_journal_options, journal_folder_of
from moot.cli.options.shared_options import add_approver_state, add_json
from moot.cli.process import program
from moot.errors import UsageError
from moot.operations.text.terminal_escape import printable

if TYPE_CHECKING:
    from moot.store.journal_reader import JournalRecord
    from moot.trust.history.proposal_history import HistoryProposal, ProposalHistory

# Most records are of other kinds, and are not parsed.
_MARK = b'"in":"sign_in"'


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands,
        name,
        help="explain why a proposal was or was not carried out",
        about="Tells what became of a proposal, who or which rule decided it, what the rules of then say to "
        "it, as far as the journal tells of them, what they would decide now, and what changed in between.",
        examples="  moot proposal explain 3f1c22ab   as `moot proposals` shows it\n",
    )
    parser.add_argument(
        "id", metavar="ID", help="of a proposal, or its beginning; or of its fulfilment or its answer"
    )
    add_journal_options(parser)
    add_approver_state(parser)
    add_json(parser)
    parser.set_defaults(run=run_explain)


def _find(ledger: ProposalHistory, named: str) -> HistoryProposal:
    """By an id, or by the beginning of a proposal's; raises UsageError."""
    from moot.operations.operation import MIN_PREFIX_CHARS

    found = ledger.get(named)
    like = [found] if found is not None else [each for each in ledger if each.id.startswith(named)]
    if len(like) == 1 and (found is not None or len(named) >= MIN_PREFIX_CHARS):
        return like[0]
    if like and named:
        many = f"{len(like)} proposals begin" if len(like) > 1 else "a proposal begins"
        raise UsageError(
            f"{many} with {named}: type more of the id, at least {MIN_PREFIX_CHARS} characters;"
            " `moot proposal history` lists them"
        )
    raise UsageError(
        f"no proposal, request or response {named!r} in the journal; `moot proposal history` lists them"
    )


def run_explain(options: argparse.Namespace) -> int:
    from dataclasses import replace

    from moot.trust.checks.explain import explain, judge_offline
    from moot.trust.checks.rules_then import replay_then
    from moot.trust.history.ledger_reader import read_ledger
    from moot.trust.rules.rule_store import RuleStore

    journal = journal_folder_of(options)
    now = time.time()
    ledger = read_ledger(journal, now=now)
    decision = _find(ledger, options.id)
    state = options.state or Path(".moot") / "trust" / journal.parent.name
    store = RuleStore.open(state) if state.is_dir() else None
    if store is None:
        found = explain(decision, (), now)
    else:
        verdict, notes = judge_offline(decision, store, list(ledger), now)
        rules = store.rules_about(decision.case, decision.rule)
        found = explain(decision, rules, now, verdict=verdict, notes=notes)
    found = replace(found, notes=(*found.notes, *_sign_in_notes(journal, decision)))
    then = replay_then(decision, _rule_records(journal, decision), list(ledger))
    if options.json:
        shown = found.as_json()
        fields = {"id": shown.pop("proposal"), "reason": shown.pop("why"), **shown, "then": then.as_json()}
        print(json.dumps(fields, ensure_ascii=False))
        return 0
    done, *rest = found.lines()
    for line in (done, *then.lines(), *rest):
        print(printable(line))
    return 0


def _rule_records(journal: Path, decision: HistoryProposal) -> Iterator[JournalRecord]:
    """What was told of rules, and what was decided; most records are of other kinds, and are not parsed."""
    from moot.store.journal_reader import read_records

    ids = [each.encode() for each in (decision.id, decision.decided.envelope) if each]
    marks = (b'"trust/rule"', b'"trust.rule"', *ids)
    return (each for each in read_records(journal) if any(mark in each.line for mark in marks))


def _sign_in_notes(journal: Path, decision: HistoryProposal) -> list[str]:
    """How the proposer and whoever decided had signed in when they did; nothing of others."""
    names = {decision.case.proposer, decision.by, *decision.votes}
    until = decision.at if decision.at is not None else float("inf")
    found = _last_sign_ins(journal, {name for name in names if name}, until)
    return [_in_words(name, details) for name, details in sorted(found.items())]


def _last_sign_ins(journal: Path, names: Collection[str], until: float) -> dict[str, Mapping[str, Any]]:
    """By name, the last sign-in up to a time: issuer, subject, rule, client."""
    from moot.store.journal_reader import read_records

    found: dict[str, Mapping[str, Any]] = {}
    for record in read_records(journal):
        if _MARK not in record.line:
            continue
        fields = record.fields
        if fields.get("in") == "sign_in" and fields.get("who") in names and fields["t"] <= until:
            found[fields["who"]] = fields["sign_in"].get("details", {})
    return found


def _in_words(name: str, details: Mapping[str, Any]) -> str:
    client = f" with {details['client']}" if "client" in details else ""
    profile = f", profile {details['profile']}" if "profile" in details else ""
    return (
        f"{name} signed in at {details.get('issuer')} as {details.get('subject')}{client}"
        f" (rule {details.get('rule')} of gateway.oidc{profile})"
    )
