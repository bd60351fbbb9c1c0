"""`moot journal verify` and `moot journal repair`: is a space whole, and giving up what it has lost."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from moot.cli.journal.journal_log import log_report
from moot.errors import UsageError
from moot.operations.text.terminal_escape import printable
from moot.protocol.envelope import rfc3339
from moot.store.database import StoredSnapshot, spaces_with_snapshots, stored_marker, stored_snapshots
from moot.store.journal_erasure import find_erasures, read_hold
from moot.store.journal_reader import verify
from moot.store.journal_segments import repair_hint
from moot.store.position_marker import MARKER_FILE, read_marker
from moot.store.segment_writer import lock_folder

if TYPE_CHECKING:
    from moot.gateway.hosting.space_repair import RepairPlan

# How many acts are shown one by one.
_SHOWN_ACTS = 20


def known_spaces(options: argparse.Namespace) -> list[str]:
    """The spaces of a data folder that a journal, a snapshot or a marker tells of."""
    data: Path = options.data
    found = {path.parent.name for path in data.glob("spaces/*/journal")}
    found |= {path.parent.name for path in data.glob(f"spaces/*/{MARKER_FILE}")}
    try:
        found |= set(spaces_with_snapshots(data / "moot.sqlite"))
    except UsageError:
        if not found:
            raise
    if not found:
        # Nothing there, or nothing that we may see: the latter is said by this.
        for folder in (data, data / "spaces"):
            if folder.is_dir():
                os.listdir(folder)
        raise UsageError(f"no space in {data}: name the gateway's data folder with --data DIR")
    if options.space is None:
        return sorted(found)
    if options.space not in found:
        raise UsageError(f"no space {options.space!r} in {data}: there is {', '.join(sorted(found))}")
    return [options.space]


def run_verify(options: argparse.Namespace) -> int:
    broken = False
    for space in known_spaces(options):
        folder = options.data / "spaces" / space / "journal"
        faults, holds = _faults_of(options.data, space, folder)
        report = log_report(options, folder)
        if not faults:
            print(f"{printable(space)}: {holds}: the chain holds")
        for fault in (*faults, *report.faults):
            broken = True
            print(f"{printable(space)}: {printable(fault)}")
        for fact in report.facts:
            print(f"  {printable(fact)}")
        if faults:
            print(f"  before it hold {holds}")
            print(f"  {printable(repair_hint(folder))}")
    return 1 if broken else 0


def _faults_of(data: Path, space: str, folder: Path) -> tuple[list[str], str]:
    """What is wrong with a space, and how much of its journal holds."""
    faults: list[str] = []
    # These first: a gateway that runs may write on, and what they tell of is in the journal before.
    known = _known_positions(data, space, folder, faults)
    verdict = verify(folder)
    extent = f", {verdict.first} to {verdict.last}" if verdict.count else ""
    holds = f"{verdict.count} records{extent}"
    if (problem := verdict.problem) is not None:
        place = f"{problem.segment} line {problem.line}: {problem.what}"
        faults.insert(0, f"broken at {place}: {problem.text}")
        return faults, holds
    for position, whose in known:
        if position > verdict.last:
            faults.append(
                f"broken at its end: truncated: it ends with record {verdict.last}, but {whose} record "
                f"{position}"
            )
    if verdict.first > 1 and not any(
        one.state is not None and one.position >= verdict.first - 1 for one in _snapshots(data, space)
    ):
        faults.append(f"it begins with record {verdict.first}, and no snapshot covers what was before")
    erased = find_erasures(folder)
    if erased.unnamed:
        faults.append(
            f"changed: record {erased.unnamed[0]} says that it was erased, and no record tells of that"
        )
    elif erased.numbers:
        holds += f" ({len(erased.numbers)} of them were erased: {_ranges(erased.numbers)})"
    if (hold := read_hold(folder)) is not None:
        holds += f" (held: {hold.why})"
    if not faults and verdict.torn:
        holds += f" ({verdict.torn} bytes at the end are no whole record yet)"
    return faults, holds


def _ranges(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return shown if len(numbers) <= 10 else f"{shown}, …"


def _known_positions(data: Path, space: str, folder: Path, faults: list[str]) -> list[tuple[int, str]]:
    known: list[tuple[int, str]] = []
    try:
        for one in stored_snapshots(data / "moot.sqlite", space):
            known.append((one.position, "a snapshot covers"))
            if one.state is None:
                faults.append(f"the snapshot that covers record {one.position} is damaged")
    except UsageError as fault:
        faults.append(str(fault))
    try:
        if (marker := read_marker(folder.parent)) is not None:
            known.append((marker.record, f"{MARKER_FILE} tells of"))
    except UsageError as fault:
        faults.append(str(fault).partition(" Restore ")[0])
    try:
        if (noted := stored_marker(data / "moot.sqlite", space)) is not None:
            known.append((noted.record, "moot.sqlite tells of"))
    except UsageError as fault:
        faults.append(str(fault))
    return known


def _snapshots(data: Path, space: str) -> list[StoredSnapshot]:
    try:
        return stored_snapshots(data / "moot.sqlite", space)
    except UsageError:
        return []


def run_repair(options: argparse.Namespace) -> int:
    # The rest of the journal's commands need no gateway.
    from moot.gateway.hosting.space_repair import carry_out_repair, plan_repair

    spaces = known_spaces(options)
    if len(spaces) > 1:
        raise UsageError(f"several spaces in {options.data}: choose one with --space ({', '.join(spaces)})")
    folder = options.data / "spaces" / spaces[0] / "journal"
    if folder.is_dir():
        os.close(lock_folder(folder))
    plan = plan_repair(options.data, spaces[0])
    if not plan.problems:
        print(f"{printable(plan.name)}: nothing to repair")
        return 0
    for text in _explain(plan):
        print(printable(text))
    if not options.yes and not _confirmed():
        return 1
    kept = carry_out_repair(plan)
    print(f"repaired: record {plan.next_number} of the journal tells what was given up")
    for path in kept:
        print(f"kept aside: {printable(str(path))}")
    print("Look at the members and their rights before you let agents work: moot members")
    return 0


def _explain(plan: RepairPlan) -> list[str]:
    texts = [f"{plan.name}: {problem}" for problem in plan.problems]
    texts.append("")
    first, last = plan.next_number, plan.known
    if last >= first:
        since = f" written after {rfc3339(plan.since)}" if plan.since else ""
        until = f", the last one that can still be read at {rfc3339(plan.until)}" if plan.until else ""
        texts.append(f"Given up: records {first} to {last} of the history{since}{until}.")
    else:
        texts.append("Given up: nothing of the history.")
    texts.append(f"The state comes from {plan.base}, and what follows it, up to record {plan.through}.")
    if plan.space is not None:
        members = list(plan.space.state.roster)
        kicked = sorted(member.name for member in members if member.kicked)
        paused = sorted(member.name for member in members if member.pause is not None)
        texts.append(
            f"Known as removed: {', '.join(kicked) or 'nobody'}; paused: {', '.join(paused) or 'nobody'}."
        )
    if not plan.is_complete:
        texts.append(
            f"Not known: what was decided after record {plan.through}. A kick or a revocation from that "
            f"time is "
            "undone unless it is listed here:"
        )
        texts += [f"  applied: {what}" for what in plan.reductions[:_SHOWN_ACTS]]
        if len(plan.reductions) > _SHOWN_ACTS:
            texts.append(f"  applied: {len(plan.reductions) - _SHOWN_ACTS} more")
        if not plan.reductions:
            texts.append("  nothing could be read")
        if plan.closed_proposals:
            texts.append(
                f"{len(plan.closed_proposals)} open proposals are closed, for each may have been decided: "
                + ", ".join(plan.closed_proposals[:_SHOWN_ACTS])
            )
    texts.append("The damaged files are kept beside the new ones; nothing is deleted.")
    return texts


def _confirmed() -> bool:
    if not sys.stdin.isatty():
        raise UsageError("nothing was changed: read this, and call again with --yes if you mean it")
    print("Type yes to give this up: ", end="", flush=True)
    return sys.stdin.readline().strip() == "yes"
