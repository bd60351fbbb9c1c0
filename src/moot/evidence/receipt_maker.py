"""Making a receipt: the records of a journal that are about a proposal or a call, with their proofs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from moot.errors import InvalidRequest, UsageError
from moot.evidence.inclusion_file import InclusionFile
from moot.evidence.log_files import FOLDER, LogReader
from moot.evidence.merkle_tree import inclusion_proof
from moot.evidence.receipt import MAX_RECORDS, TYPE, Receipt, ReceiptFault, ReceiptRecord, Role
from moot.evidence.receipt_claims import ToldStory, grants
from moot.evidence.receipt_story import LoggedMessage, Story, named_rule, read_message, rule_name
from moot.evidence.signed_note import SignerKey
from moot.evidence.withheld_fields import ShownLine, check_pointer, withhold_fields
from moot.protocol.proposal_life import RULE_KINDS
from moot.store.journal_index import JournalIndex
from moot.store.journal_reader import JournalRecord
from moot.store.journal_search import JournalQuery, search
from moot.store.record_chain import SEAL_BYTES, is_sealed, logged_text

_SALT: Final = b',"s":"'
_DECIDING: Final = frozenset(
    {"mcp/request", "mcp/reject", "mcp/withdraw", "moot/approve", "moot/settle", "moot/origins"}
)
# Grants behind each other: whoever gave a right may have it from somebody else.
_MAX_CHAIN: Final = 16

# The records that match, oldest first.
Find = Callable[[JournalQuery], Sequence[JournalRecord]]


# What a receipt is of.
RECEIPT_KINDS: Final = ("mcp/proposal", "mcp/request")


class NotDecided(UsageError):
    """There is nothing to give a receipt for, yet."""


def make_receipt(
    space: str,
    about: str,
    records: Sequence[JournalRecord],
    proofs: Callable[[Sequence[int]], Sequence[InclusionFile]],
    withhold: Collection[Role],
    unseen: Collection[int] = (),
    fields: Collection[str] = (),
    signer: Callable[[str], SignerKey] | None = None,
) -> Receipt:
    """The receipt of these records; some roles and numbers are withheld. `proofs` go by one checkpoint.

    `fields` are withheld of what is shown; `signer` gives the key of the log, which signs for that. Raises
    InvalidRequest where what is left does not belong together.
    """
    ordered = sorted(records, key=lambda each: each.number)
    if len(ordered) > MAX_RECORDS:
        raise UsageError(f"{about} has {len(ordered)} records, and a receipt at most {MAX_RECORDS}")
    roles = Story(about, ordered).roles
    # What a vote signed is withheld with a field of it, and so is the key, which would lead to nothing.
    withhold = {*withhold, "passkey"} if fields else withhold
    hidden = {each.number for each in ordered if roles[each.number] in withhold or each.number in unseen}
    # Whose hash can be guessed is neither shown nor withheld: records of earlier versions have no salt.
    ordered = [each for each in ordered if each.number not in hidden or _SALT in each.line]
    partly = _withhold_fields([each for each in ordered if _SALT in each.line], hidden, fields)
    shown = [
        JournalRecord(each.number, partly[each.number].text.encode() + b"\n", each.place)
        if each.number in partly else each
        for each in ordered if each.number not in hidden
    ]  # fmt: skip
    try:
        claims = ToldStory(about, shown, partly).claims(space)
    except ReceiptFault as fault:
        raise InvalidRequest(f"{fault}; withhold that record, too") from None
    made = []
    for each, proof in zip(ordered, proofs([each.number for each in ordered]), strict=True):
        text = _logged_text(each)
        entry = sha256(logged_text(each.line)).hexdigest()
        content = {"entry": entry} if each.number in hidden else {"line": text.decode()}
        if (part := partly.get(each.number)) is not None and signer is not None:
            origin = proof.checkpoint.origin
            content = {"line": part.text, "entry": entry, "signed": part.note(origin, entry, signer(origin))}
        made.append(ReceiptRecord(number=each.number, role=roles[each.number], proof=str(proof), **content))
    return Receipt(type=TYPE, space=space, about=about, claims=claims, records=made)


def _withhold_fields(
    records: Sequence[JournalRecord], hidden: Collection[int], fields: Collection[str]
) -> dict[int, ShownLine]:
    """The lines that are shown without these fields, by number. Raises UsageError and InvalidRequest."""
    if not fields:
        return {}
    for each in fields:
        check_pointer(each)
    salts: dict[tuple[str, bytes], str] = {}
    lines = {each.number: _logged_text(each).decode() for each in records}
    made = {each.number: withhold_fields(each, lines[each.number], fields, salts) for each in records}
    partly = {number: part for number, part in made.items() if part is not None and number not in hidden}
    if not any(pointer.endswith(field) for part in partly.values() for pointer in part.commitments
               for field in fields):  # fmt: skip
        raise InvalidRequest(f"no record that is shown has a field {', '.join(fields)}")
    texts = {number: partly[number].text if number in partly else text for number, text in lines.items()}
    shown = [(number, text) for number, text in texts.items() if number not in hidden]
    for part in partly.values():
        leak = part.leak_in(shown)
        if leak is not None:
            raise InvalidRequest(
                f"record {leak} has one of these values in another place: withhold that, too"
            )
    return partly


def receipt_of(
    journal: Path,
    named: str,
    withhold: Collection[Role],
    *,
    fields: Collection[str] = (),
    signer: Callable[[str], SignerKey] | None = None,
    index: JournalIndex | None = None,
) -> Receipt:
    """The receipt of a proposal or a call in the journal of a space; blocks. Raises UsageError."""

    def find(query: JournalQuery) -> Sequence[JournalRecord]:
        return list(search(journal, query, index=index))

    about, records = find_records(find, named)
    return make_receipt(journal.parent.name, about, records, proofs_in(journal.parent / FOLDER), withhold,
                        fields=fields, signer=signer)  # fmt: skip


def proofs_in(folder: Path) -> Callable[[Sequence[int]], list[InclusionFile]]:
    """Proofs out of the log in a folder."""

    def proofs(numbers: Sequence[int]) -> list[InclusionFile]:
        reader = LogReader(folder)
        indexes = [reader.index_of(each) for each in numbers]
        for found in (reader.cosigned(), reader.signed()):
            if found is not None and max(indexes) < found[0].size:
                checkpoint, note = found
                return [
                    InclusionFile(
                        each, inclusion_proof(each, checkpoint.size, reader.subtree), note, checkpoint
                    )
                    for each in indexes
                ]
        raise NotDecided(f"record {max(numbers)} is not signed for yet: try again in a moment")

    return proofs


def find_records(find: Find, named: str) -> tuple[str, list[JournalRecord]]:
    """All records that a receipt is made of, and the id that it is about. Raises UsageError."""
    first = _first(find, named)
    about, start = first.envelope.id, first.record.number
    later = _messages(find(JournalQuery(about=about)), after=start)
    # An id can be used again (D-94): what comes after that is about another proposal.
    again = [each for each in _messages(find(JournalQuery(id=about)), after=start)
             if each.envelope.kind == "mcp/proposal"]  # fmt: skip
    until = again[0].record.number if again else float("inf")
    decided = [each for each in later if each.envelope.kind in _DECIDING and each.record.number < until]
    if first.envelope.kind == "mcp/request":
        decided = [first]
    elif not any(each.envelope.kind != "moot/origins" for each in decided):
        raise NotDecided(f"{about} is not decided: a receipt comes with the decision")
    found = {each.record.number: each.record for each in (first, *decided)}
    requests = [request for each in decided for request in each.requests]
    for request in requests:
        others = [each for each in request.correlation_id if each != about]
        named_too = [each for id in others for each in _messages(find(JournalQuery(id=id)), after=start)]
        changes = [
            each
            for each in named_too
            if each.envelope.kind == "mcp/proposal" and about in each.envelope.correlation_id
        ]
        answers = [each for each in _messages(find(JournalQuery(about=request.id)), after=start)
                   if each.envelope.kind == "mcp/response"]  # fmt: skip
        found |= {each.record.number: each.record for each in (*changes, *answers)}
    decisions = [each for each in decided if each.envelope.kind != "moot/origins"]
    for record in _authority(find, decisions):
        found[record.number] = record
    return about, list(found.values())


def _first(find: Find, named: str) -> LoggedMessage:
    """The proposal, or the call without one, that an id names: its own, or that of a message about it."""
    records = find(JournalQuery(id=named))
    found = _messages(records)
    if not found:
        gone = next((each for each in records if each.text("out") == "erased"), None)
        if gone is not None:
            raise UsageError(f"record {gone.number} ({named}) was erased: `moot journal show {gone.number}`")
        raise UsageError(f"no accepted proposal or call {named!r} in this journal: see `moot decisions`")
    last = found[-1]
    for id in () if last.envelope.kind == "mcp/proposal" else last.envelope.correlation_id:
        above = [each for each in _messages(find(JournalQuery(id=id)))
                 if each.envelope.kind in RECEIPT_KINDS
                 and each.record.number < last.record.number]  # fmt: skip
        if above:
            return above[-1] if above[-1].envelope.kind == "mcp/proposal" else _first(find, id)
    if last.envelope.kind not in RECEIPT_KINDS:
        raise UsageError(f"{named} is a message of kind {last.envelope.kind}: name a proposal or a call")
    return last


def _authority(find: Find, decisions: Sequence[LoggedMessage]) -> list[JournalRecord]:
    """By which rule, right and identity somebody decided: the records that say so."""
    last = max(each.record.number for each in decisions)
    found = [_last(find(JournalQuery(kind="reload")), last)]
    given = _of_kinds(find, "capability/grant", "capability/revoke")
    rules = _of_kinds(find, *RULE_KINDS)
    keys = find(JournalQuery(kind="passkey_add"))
    for each in decisions:
        number, who = each.record.number, each.who
        found.append(_last(find(JournalQuery(kind="sign_in", who=who)), number))
        found += [_key_of(keys, each), _rule_of(rules, each)]
        found += _chain(given, each)
    return [each for each in found if each is not None]


def _key_of(keys: Sequence[JournalRecord], vote: LoggedMessage) -> JournalRecord | None:
    assertion: Any = vote.envelope.payload.get("passkey")
    if not isinstance(assertion, dict):
        return None
    named = str(assertion.get("credential_id"))
    added = [each for each in keys if _at(each.fields, "passkey", "key", "id") == named]
    return _last([each for each in added if each.text("out") in ("", "accepted")], vote.record.number)


def _rule_of(rules: Sequence[LoggedMessage], decision: LoggedMessage) -> JournalRecord | None:
    name = named_rule(decision.envelope)
    told = [
        each.record
        for each in rules
        if each.envelope.id in decision.envelope.correlation_id or (name and rule_name(each.envelope) == name)
    ]
    return _last(told, decision.record.number)


def _chain(given: Sequence[LoggedMessage], decision: LoggedMessage) -> list[JournalRecord]:
    """The grants that allow this decision, the nearest first, and those of whoever gave them."""
    before = [each for each in given if each.record.number < decision.record.number]
    revoked = {each.envelope.payload.get("grant_id") for each in before
               if each.envelope.kind == "capability/revoke"}  # fmt: skip
    living = [each for each in before
              if each.envelope.kind == "capability/grant" and each.envelope.id not in revoked]  # fmt: skip
    found: list[JournalRecord] = []
    holders = {decision.who, decision.envelope.sender}
    for _ in range(_MAX_CHAIN):
        grant = next((each for each in reversed(living)
                      if each.envelope.payload.get("recipient") in holders
                      and grants(each.envelope, decision.envelope)), None)  # fmt: skip
        if grant is None or grant.record in found:
            break
        found.append(grant.record)
        living = living[: living.index(grant)]
        holders = {grant.who, grant.envelope.sender}
    return found


def _of_kinds(find: Find, *kinds: str) -> list[LoggedMessage]:
    """Messages of some kinds in their order. By whole names: what begins like one is in no index."""
    spelled = [spelling for kind in kinds for spelling in (kind, kind.replace("/", "."))]
    records = [each for kind in spelled for each in find(JournalQuery(kind=kind))]
    return _messages(sorted(records, key=lambda each: each.number))


def _messages(records: Sequence[JournalRecord], after: int = 0) -> list[LoggedMessage]:
    read = (read_message(each) for each in records if each.number > after)
    return [each for each in read if each is not None]


def _last(records: Sequence[JournalRecord], before: int) -> JournalRecord | None:
    return next((each for each in reversed(records) if each.number < before), None)


def _at(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _logged_text(record: JournalRecord) -> bytes:
    """What the entry of a record is the hash of: its line without seal and newline."""
    line = record.line
    return line[:-SEAL_BYTES] + b"}" if is_sealed(line) else line[:-1]
