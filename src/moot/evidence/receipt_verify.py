"""Verifying a receipt with a public key or a policy alone, offline. Whatever is wrong is said in words.

What is believed: that a key of the policy signed the checkpoint, and so every line that leads to its root.
What the receipt claims beside is derived again from the lines and compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

import msgspec

from moot.errors import MootError
from moot.evidence.checkpoint import Checkpoint
from moot.evidence.inclusion_file import parse_inclusion_file
from moot.evidence.receipt import Claims, Receipt, ReceiptFault, ReceiptRecord, parse_receipt
from moot.evidence.receipt_claims import ToldStory
from moot.evidence.signed_note import Note, NoteError, VerifierKey
from moot.evidence.withheld_fields import read_withheld
from moot.evidence.witness_policy import KnownLog, Policy
from moot.protocol import strict_json
from moot.protocol.envelope import rfc3339
from moot.store.journal_reader import JournalRecord, RecordPosition
from moot.store.record_chain import logged_text, number_in

_HEX: Final = re.compile(r"[0-9a-f]{64}")
# Between a gateway and its witnesses.
CLOCKS_DIFFER_SECONDS: Final = 300.0
_NOWHERE: Final = RecordPosition(0, 0)


@dataclass(slots=True)
class Verdict:
    """`problems` is empty if the receipt holds; `claims` are those of the lines, whatever it says itself."""

    problems: list[str] = field(default_factory=list)
    receipt: Receipt | None = None
    claims: Claims | None = None
    checkpoint: Checkpoint | None = None
    # When each witness says that it saw the log, in seconds since 1970.
    witnesses: Mapping[str, int] = field(default_factory=dict)
    # What is withheld of records that are shown, by number; that the rest is theirs, the log's key says.
    fields: dict[int, list[str]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.problems

    @property
    def withheld(self) -> list[ReceiptRecord]:
        return [] if self.receipt is None else [each for each in self.receipt.records if not each.line]


def policy_of_key(text: str) -> Policy:
    """The policy of who knows one log's key and asks for no witness; raises NoteError."""
    return Policy((KnownLog(VerifierKey.parse(text.strip())),), (), {}, "none")


def verify_receipt(raw: bytes, policy: Policy) -> Verdict:
    """Whether a receipt holds; never raises."""
    verdict = Verdict()
    try:
        verdict.receipt = receipt = parse_receipt(raw)
    except ReceiptFault as fault:
        verdict.problems.append(str(fault))
        return verdict
    verdict.problems += _check_log(receipt, policy, verdict)
    shown = []
    for each in receipt.records:
        if each.line:
            try:
                shown.append(_record_of(each))
            except MootError as fault:
                verdict.problems.append(f"record {each.number}: {fault}")
    verdict.problems += _check_times(shown, verdict.witnesses)
    if verdict.problems:
        # Whatever the lines say, nobody signed it.
        return verdict
    try:
        story = ToldStory(receipt.about, shown, verdict.fields)
        verdict.claims = story.claims(receipt.space)
    except ReceiptFault as fault:
        verdict.problems.append(str(fault))
        return verdict
    for each in receipt.records:
        said = story.roles.get(each.number, each.role)
        if said != each.role:
            verdict.problems.append(f"record {each.number} is called the {each.role}, and is the {said}")
    said, found = msgspec.to_builtins(receipt.claims), msgspec.to_builtins(verdict.claims)
    verdict.problems += [f"the claim {text}" for text in _differences(said, found, "")]
    return verdict


def _check_log(receipt: Receipt, policy: Policy, verdict: Verdict) -> Iterator[str]:
    """That each entry is in one log, of this space, in this order, and that the log was signed for."""
    note: Note | None = None
    last, last_index = 0, -1
    for each in receipt.records:
        try:
            proof = parse_inclusion_file(each.proof.encode())
        except NoteError as fault:
            yield f"the proof of record {each.number}: {fault}"
            continue
        if note is None:
            note, verdict.checkpoint = proof.note, proof.checkpoint
            yield from _check_checkpoint(receipt, proof.checkpoint, note, policy, verdict)
        elif proof.note != note:
            yield f"the proof of record {each.number} goes by another checkpoint than those before it"
        if each.line and each.entry:
            try:
                known = [log.key for log in policy.logs]
                verdict.fields[each.number] = read_withheld(
                    each.line, each.entry, proof.checkpoint.origin, each.signed, known
                )
            except NoteError as fault:
                yield f"record {each.number} has both a line and the entry of a withheld one: {fault}"
        if (each.entry or not each.line) and not _HEX.fullmatch(each.entry):
            yield f"record {each.number} has no line, and no entry of a withheld one (64 hex digits)"
        # Not by what a line says of itself: one that was erased names any entry that it likes.
        elif not proof.proves(
            bytes.fromhex(each.entry)
            if each.entry
            else sha256(logged_text(each.line.encode() + b"\n")).digest()
        ):
            yield f"record {each.number} is not in the log: its proof does not lead to the checkpoint's root"
        if each.number <= last or proof.index <= last_index:
            yield f"record {each.number} is not in the order of the log"
        last, last_index = each.number, proof.index


def _check_checkpoint(
    receipt: Receipt, checkpoint: Checkpoint, note: Note, policy: Policy, verdict: Verdict
) -> Iterator[str]:
    # A log that was begun anew has a number behind its name.
    if not re.fullmatch(rf".+/spaces/{re.escape(receipt.space)}/log(/[0-9]+)?", checkpoint.origin):
        yield f"the receipt is of space {receipt.space}, but its log is {checkpoint.origin}"
    try:
        policy.judge(checkpoint, note)
        verdict.witnesses = policy.seen_by(note)
    except NoteError as fault:
        yield f"the checkpoint: {fault}"


def _check_times(shown: Sequence[JournalRecord], witnesses: Mapping[str, int]) -> Iterator[str]:
    """A gateway's clock may say what it likes; what somebody saw before was not made after."""
    name = max(witnesses, key=witnesses.__getitem__, default="")
    for each in shown:
        if name and each.time > witnesses[name] + CLOCKS_DIFFER_SECONDS:
            seen = rfc3339(witnesses[name])
            yield f"record {each.number} says that it is of {rfc3339(each.time)}, but {name} saw it at {seen}"


def _record_of(each: ReceiptRecord) -> JournalRecord:
    raw = each.line.encode()
    strict_json.parse_any_depth(raw)
    if number_in(raw) != each.number:
        raise ReceiptFault(f"its line says that it is record {number_in(raw)}")
    return JournalRecord(each.number, raw + b"\n", _NOWHERE)


def _differences(said: Any, found: Any, path: str) -> Iterator[str]:
    if isinstance(said, dict) and isinstance(found, dict):
        for name in sorted(said.keys() | found.keys()):
            yield from _differences(said.get(name), found.get(name), f"{path}.{name}" if path else name)
    elif isinstance(said, list) and isinstance(found, list) and len(said) == len(found):
        for number, (one, other) in enumerate(zip(said, found, strict=True)):
            yield from _differences(one, other, f"{path}[{number}]")
    elif said != found or type(said) is not type(found):
        yield f"{path} says {_short(said)}, and the records say {_short(found)}"


def _short(value: Any) -> str:
    text = "nothing" if value is None else strict_json.encode(value).decode()
    return text if len(text) <= 120 else text[:119] + "…"
