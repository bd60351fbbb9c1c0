"""Giving up what a space has lost, knowingly: what `moot journal repair` would do, and doing it (D-98).

The state comes from the newest whole witness: a snapshot, or a record that contains the state. Records behind
it are replayed as long as the chain vouches for them without a hole. Of what is left, only what took rights
away is applied. If something is missing, open proposals are closed: each of them may have been carried out,
rejected or withdrawn in the part that is gone. So no right comes back that any surviving file knows to be
gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from moot.errors import Refused, UsageError
from moot.evidence.log_files import set_aside
from moot.gateway.hosting.mint import FreshMint
from moot.gateway.hosting.rights_reduction import describe_reduction, reduce_rights
from moot.gateway.hosting.space_records import encode_record, load_state, replay
from moot.gateway.hosting.stored_input import StoredInput, read_input
from moot.private_files import sync_folder
from moot.protocol import strict_json
from moot.protocol.operation import Json
from moot.space.config_json import save_config
from moot.space.space import Space
from moot.store.database import replace_snapshots, stored_marker, stored_snapshots
from moot.store.journal_salvage import (
    NEW_FOLDER,
    SalvagedLine,
    SoundPrefix,
    replace_journal,
    salvage,
    sound_prefix,
)
from moot.store.journal_segments import chain_start, find_tail, first_head, make_folder
from moot.store.position_marker import PositionMarker, join_markers, read_marker, write_marker

T = TypeVar("T")


@dataclass
class RepairPlan:
    """What is wrong with one space, what can be had back, and what is given up."""

    data: Path
    name: str
    problems: list[str] = field(default_factory=list)
    known: int = 0  # the newest record that anything tells of
    generation: int = 0  # of the newest snapshot that anything tells of
    prefix: SoundPrefix | None = None
    space: Space | None = None
    base: str = "nothing but the configuration at the next start"
    through: int = 0  # the last record whose effect is known
    acts: list[bytes] = field(default_factory=list)
    reductions: list[str] = field(default_factory=list)
    closed_proposals: list[str] = field(default_factory=list)
    since: float | None = None
    until: float | None = None
    is_state_missing: bool = False  # a newer state was only in a snapshot that is gone

    @property
    def folder(self) -> Path:
        return self.data / "spaces" / self.name / "journal"

    @property
    def next_number(self) -> int:
        return 1 if self.prefix is None else self.prefix.head.number

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing of the state, only of the history."""
        is_newest = self.through >= self.known and not self.acts
        return self.space is not None and is_newest and not self.is_state_missing


def plan_repair(data: Path, name: str) -> RepairPlan:
    """Look at everything there is of a space; changes nothing but finishing a swap that was interrupted."""
    plan = RepairPlan(data, name)
    folder = plan.folder
    fresh = folder.parent / NEW_FOLDER
    if fresh.exists() and not folder.exists():
        fresh.rename(folder)
        sync_folder(folder.parent)
        plan.problems.append("a repair was interrupted")
    elif fresh.exists():
        plan.problems.append("a repair was interrupted")
    in_file = _try(plan, lambda: read_marker(folder.parent))
    noted = _try(plan, lambda: stored_marker(data / "moot.sqlite", name))
    marker = join_markers(in_file, noted) or PositionMarker()
    snapshots = _try(plan, lambda: stored_snapshots(data / "moot.sqlite", name)) or []
    lines = list(salvage(folder))
    covered = max((one.position for one in snapshots), default=0)
    plan.known = max([covered, marker.record, *(line.number for line in lines)])
    whole = [(one.position, one.state) for one in snapshots if one.state is not None]
    if len(whole) < len(snapshots):
        plan.problems.append("a snapshot in moot.sqlite is damaged")
    _try(plan, lambda: find_tail(folder, repair=False, at_least=max(covered, marker.record)))
    plan.prefix = sound_prefix(folder)
    _choose_base(plan, whole, lines, marker)
    begin = chain_start(folder).number if plan.prefix.whole or plan.prefix.partial else 1
    if begin > 1 and (plan.space is None or plan.through < begin - 1):
        # What is there cannot be replayed without what was before it.
        plan.problems.append(f"no snapshot that is whole covers the records before {begin}")
    if begin > 1 and plan.space is None:
        plan.prefix = SoundPrefix([], None, first_head(folder))
    _apply_rest(plan, lines)
    return plan


def _try(plan: RepairPlan, look: Callable[[], T]) -> T | None:
    try:
        return look()
    except UsageError as fault:
        # What to do about it is not news to whoever repairs.
        plan.problems.append(str(fault).partition(" Restore ")[0])
        return None


def _choose_base(
    plan: RepairPlan, snapshots: list[tuple[int, bytes]], lines: list[SalvagedLine], marker: PositionMarker
) -> None:
    """The newest state that is whole, and what the records behind it made of it."""
    records = {line.number: line.line for line in lines if line.verified}
    states = [(number, stored) for number, stored in _stored(records) if bytes(stored.state)]
    repaired = max((stored.generation for _, stored in states), default=0)
    found = [(number, f"record {number}", load_state(bytes(stored.state))) for number, stored in states]
    for position, encoded in snapshots:
        saved = load_state(encoded)
        # Those before a repair are stale: their journal was set aside.
        if saved.generation >= repaired:
            found.append((position, f"the snapshot that covers record {position}", saved))
        plan.generation = max(plan.generation, saved.generation)
    plan.generation = max(plan.generation, repaired, marker.snapshot)
    if not found:
        return
    # The last of equals: a snapshot may be newer than the record.
    position, plan.base, saved = max(enumerate(found), key=lambda each: (each[1][0], each[0]))[1]
    plan.space, plan.through = saved.space, position
    if not marker.journaled and saved.generation < marker.snapshot:
        plan.problems.append(
            f"the newest whole snapshot is number {saved.generation}, but number {marker.snapshot} was "
            f"stored, "
            "and the journal was off"
        )
        plan.is_state_missing = True
    while (text := records.get(plan.through + 1)) is not None:
        plan.through += 1
        try:
            replay(plan.space, text, plan.space.state.config)
        except (Refused, UsageError):
            reduce_rights(plan.space, read_input(text))


def _stored(records: dict[int, bytes]) -> Iterator[tuple[int, StoredInput]]:
    """The records that contain a state."""
    for number, text in records.items():
        # Most do not, and need not be parsed to know.
        if b'"in":"state"' in text or b'"in":"repair"' in text:
            with suppress(UsageError):
                yield number, read_input(text)


def _apply_rest(plan: RepairPlan, lines: list[SalvagedLine]) -> None:
    """Apply what takes rights away in the records that cannot be replayed."""
    if plan.space is None and plan.prefix is not None:
        plan.through = plan.prefix.head.number - 1
    for each in lines:
        if each.number <= plan.through:
            continue
        with suppress(UsageError):
            stored = read_input(each.line)
            if (what := describe_reduction(stored)) is None:
                continue
            plan.acts.append(each.line)
            plan.reductions.append(f"record {each.number}: {what}")
            if plan.space is not None:
                reduce_rights(plan.space, stored)
    if plan.space is not None and not plan.is_complete:
        state = plan.space.state
        for proposal in state.ledger.all_open():
            plan.closed_proposals.append(proposal.id)
            state.settle_proposal(proposal, "withdrawn", None, time.time())
        for grant in list(state.grants.by_id.values()):
            if grant.uses_left is not None:
                # How often it was used is in the records that are lost.
                plan.reductions.append(f"grant {grant.id} to {grant.recipient}: its uses are not known")
                state.grants.remove(grant.id)
                state.forget_grant(grant)
    plan.since = _time_of(lines, plan.next_number - 1)
    plan.until = _time_of(lines, max((each.number for each in lines), default=0))


def _time_of(lines: list[SalvagedLine], number: int) -> float | None:
    for each in lines:
        if each.number == number:
            with suppress(UsageError):
                return read_input(each.line).t
    return None


def carry_out_repair(plan: RepairPlan) -> list[Path]:
    """Set the damaged files aside and go on with what is sound; returns where they are.

    The record of what was given up is the first thing in the new journal, with the state that comes back. A
    crash in between leaves a space that does not start, and the same command goes on.
    """
    assert plan.prefix is not None  # noqa: S101  # a plan is made by plan_repair
    now, number, generation = time.time(), plan.next_number, plan.generation + 1
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    facts: dict[str, Json] = {
        "first": number,
        "known": plan.known,
        "base": plan.base,
        "generation": generation,
        "problems": list(plan.problems),
        "reductions": list(plan.reductions),
        "closed_proposals": list(plan.closed_proposals),
        "set_aside": f"journal.damaged-{stamp}",
    }
    members = encode_record("repair", now, FreshMint(), **facts)
    state: bytes | None = None
    if plan.space is not None:
        saved = plan.space.save() | {"config": save_config(plan.space.state.config)}
        saved |= {"generation": generation, "journaled": True}
        state = strict_json.encode(saved)
        members += b',"state":' + state
    elif plan.acts:
        members += b',"acts":[' + b",".join(act.rstrip(b"\n") for act in plan.acts) + b"]"
    make_folder(plan.folder.parent)
    log = set_aside(plan.folder.parent, number, stamp)
    kept = [replace_journal(plan.folder, plan.prefix, members, stamp), *([] if log is None else [log])]
    marker = PositionMarker(record=number, snapshot=generation)
    copy = replace_snapshots(plan.data / "moot.sqlite", plan.name, number, state, marker, stamp)
    kept += [] if copy is None else [copy]
    write_marker(plan.folder.parent, marker)
    return kept
