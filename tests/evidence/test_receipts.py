"""Receipts: what they say is what the log has, and whatever is changed in one is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from moot.errors import InvalidRequest, UsageError
from moot.evidence.checkpoint import cosign
from moot.evidence.inclusion_file import parse_inclusion_file
from moot.evidence.receipt import Receipt, receipt_schema
from moot.evidence.receipt_maker import NotDecided
from moot.evidence.receipt_verify import policy_of_key, verify_receipt
from moot.evidence.signed_note import COSIGNATURE, SignerKey
from moot.evidence.witness_policy import Policy, Witness
from tests.authenticator import SoftwareAuthenticator
from tests.evidence.receipts import KEY, ORIGIN, PAY, POLICY, RESULT, Journal, decided_journal, signed_journal

OTHER = SignerKey(ORIGIN, Ed25519PrivateKey.from_private_bytes(b"o" * 32))


def problems(receipt: Receipt | bytes, policy: Any = POLICY) -> list[str]:
    raw = receipt if isinstance(receipt, bytes) else receipt.as_bytes()
    return verify_receipt(raw, policy).problems


def test_a_receipt_says_who_proposed_who_decided_by_which_right_and_what_ran() -> None:
    receipt = decided_journal().receipt(withhold=())
    assert problems(receipt) == []
    assert problems(receipt, policy_of_key(str(KEY.verifier))) == []
    claims = receipt.claims
    assert claims.state == "done"
    assert claims.proposed is not None
    assert claims.ran is not None
    canonical = '{"method":"tools/call","params":{"arguments":{"amount":1.5,"to":"é"},"name":"pay"}}'
    assert (claims.proposed.by, claims.proposed.canonical) == ("agent", canonical)
    assert claims.proposed.sha256 == claims.ran.sha256 == sha256(canonical.encode()).hexdigest()
    assert [(each.by, each.how, each.id) for each in claims.decisions] == [("ana", "approved", "r1")]
    assert [(each.by, each.to) for each in claims.grants] == [("bob", "ana")]
    assert [(each.by, each.issuer, each.subject) for each in claims.identities] == [
        ("ana", "https://id.example", "ana@example")
    ]
    assert [(each.by, each.outcome) for each in claims.answers] == [("host", "done")]
    assert [each.arguments for each in claims.origins] == [{"to": "person"}]
    assert claims.configuration is not None
    # Mallory's request was refused, and what others said is nobody's business.
    assert [each.number for each in receipt.records] == [1, 2, 4, 6, 7, 9, 10]


def test_results_tokens_and_the_configuration_are_withheld_and_can_be_revealed_later() -> None:
    journal = decided_journal()
    receipt = journal.receipt()
    text = receipt.as_bytes().decode()
    assert problems(receipt) == []
    assert "paid" not in text
    assert "1" * 64 not in text
    assert "participants" not in text
    verdict = verify_receipt(receipt.as_bytes(), POLICY)
    assert [each.role for each in verdict.withheld] == ["configuration", "response"]
    assert receipt.claims.state == "fulfilled"
    assert receipt.claims.answers == []
    # Put in its place, the line shows itself to be the one that was withheld.
    document = json.loads(text)
    whole = json.loads(journal.receipt(withhold=()).as_bytes())
    last = document["records"][-1]
    last["line"] = journal.lines[last["number"] - 1].decode().rstrip("\n")
    del last["entry"]
    document["claims"]["answers"], document["claims"]["state"] = whole["claims"]["answers"], "done"
    assert problems(json.dumps(document).encode()) == []
    last["line"] = last["line"].replace("paid", "Paid")
    assert any("is not in the log" in each for each in problems(json.dumps(document).encode()))


def test_a_vote_with_a_passkey_is_verified_again_by_its_public_key() -> None:
    key = SoftwareAuthenticator(b"ana's")
    receipt = signed_journal(key).receipt()
    assert problems(receipt) == []
    (vote,) = receipt.claims.decisions
    assert vote.passkey is not None
    assert vote.passkey.public_key == key.public_key
    assert receipt.claims.ran is not None
    assert receipt.claims.ran.id == "r1"
    # Signed by another key under her id: also a log that says otherwise does not make it hold.
    journal = signed_journal(key)
    journal.lines[0] = journal.lines[0].replace(
        key.public_key.encode(), SoftwareAuthenticator(b"bob's").public_key.encode()
    )
    with pytest.raises(InvalidRequest, match="passkey of record 3"):
        journal.receipt()


@pytest.mark.parametrize("kind", ["mcp/reject", "mcp/withdraw"])
def test_a_no_has_a_receipt_as_well(kind: str) -> None:
    journal = Journal()
    journal.say("agent", "mcp/proposal", PAY, id="p1")
    journal.say("agent" if kind == "mcp/withdraw" else "ana", kind, {"reason": "unsafe"}, about=["p1"])
    receipt = journal.receipt()
    assert problems(receipt) == []
    assert receipt.claims.state == ("rejected" if kind == "mcp/reject" else "withdrawn")
    assert (receipt.claims.decisions[0].reason, receipt.claims.ran) == ("unsafe", None)


def test_a_call_without_a_proposal_and_one_by_a_rule_have_receipts() -> None:
    journal = Journal()
    journal.say("ana", "mcp/request", PAY, id="r1")
    journal.say("host", "mcp/response", {"error": {"code": 1, "message": "no"}}, about=["r1"])
    receipt = journal.receipt("r1", withhold=())
    assert problems(receipt) == []
    assert (receipt.claims.state, receipt.claims.decisions[0].how) == ("failed", "called")
    journal.say("approver", "trust/rule", {"rule": {"name": "small"}, "state": "active"}, id="t1")
    journal.say("agent", "mcp/proposal", PAY, id="p1")
    journal.say("approver", "mcp/request", PAY, id="r2", about=["p1"], context="trust/rule/small")
    receipt = journal.receipt("r2")
    assert problems(receipt) == []
    assert (receipt.about, receipt.claims.decisions[0].rule) == ("p1", "small")
    assert [each.name for each in receipt.claims.rules] == ["small"]


def test_a_change_is_what_ran_and_the_original_is_what_was_proposed() -> None:
    journal = Journal()
    journal.say("agent", "mcp/proposal", PAY, id="p1")
    less = {"method": "tools/call", "params": {"name": "pay", "arguments": {"amount": 1}}}
    journal.say("ana", "mcp/proposal", less, id="c1", about=["p1"])
    journal.say("ana", "mcp/request", less, id="r1", about=["c1", "p1"])
    claims = journal.receipt().claims
    assert problems(journal.receipt()) == []
    assert claims.proposed
    assert claims.changed
    assert claims.ran
    assert claims.ran.fingerprint == claims.changed.fingerprint != claims.proposed.fingerprint


def test_what_is_not_decided_or_not_there_has_none_and_numbers_keep_their_digits() -> None:
    journal = Journal()
    large = {"method": "tools/call", "params": {"name": "pay", "arguments": {"amount": 9007199254740993}}}
    journal.say("agent", "mcp/proposal", large, id="p1")
    with pytest.raises(NotDecided):
        journal.receipt()
    with pytest.raises(UsageError, match="no accepted proposal"):
        journal.receipt("p2")
    journal.say("ana", "mcp/request", large, id="r1", about=["p1"])
    claims = journal.receipt().claims
    assert claims.proposed
    assert claims.proposed.sha256 == ""
    assert len(claims.proposed.fingerprint) == 64


# Tampering: each changes a document that holds, and none may hold afterwards.


def _flip_claim(*path: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        *way, last = path
        inner = document["claims"]
        for each in way:
            inner = inner[each]
        assert inner.get(last) != to
        inner[last] = to

    return change


def _in_line(number: int, old: str, new: str) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        (record,) = [each for each in document["records"] if each["number"] == number]
        assert old in record["line"]
        record["line"] = record["line"].replace(old, new, 1)

    return change


def _record(position: int, **fields: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        document["records"][position] |= fields

    return change


def _drop(position: int) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["records"].pop(position)


def _swap(document: dict[str, Any]) -> None:
    records = document["records"]
    records[-1], records[-2] = records[-2], records[-1]


def _swap_proofs(document: dict[str, Any]) -> None:
    one, two = document["records"][0], document["records"][1]
    one["proof"], two["proof"] = two["proof"], one["proof"]


def _erased_line_with_any_content(document: dict[str, Any]) -> None:
    """A line that says of itself which entry it had: nobody signed the rest of it."""
    (record,) = [each for each in document["records"] if each["number"] == 9]
    entry = sha256(record["line"].encode()).hexdigest()
    inside = record["line"].removeprefix('{"n":9,').replace('"who":"ana"', '"who":"eve"')
    record["line"] = f'{{"n":9,"erased":"{entry}",{inside}'


def _of_another_receipt(document: dict[str, Any]) -> None:
    """The answer to another call of the same log."""
    journal = decided_journal()
    number = journal.say("host", "mcp/response", RESULT, about=["r7"])
    proofs = journal.proofs([*(each["number"] for each in document["records"]), number])
    line = journal.lines[number - 1].decode().rstrip("\n")
    document["records"].append({"number": number, "role": "response", "line": line})
    for each, proof in zip(document["records"], proofs, strict=True):
        each["proof"] = str(proof)


def _refused_request(document: dict[str, Any]) -> None:
    """A request that the gateway refused is in the log, too."""
    journal = decided_journal()
    (proof,) = journal.proofs([8])
    line = journal.lines[7].decode().rstrip("\n")
    document["records"].insert(5, {"number": 8, "role": "request", "line": line, "proof": str(proof)})


def _older_checkpoint(document: dict[str, Any]) -> None:
    (proof,) = decided_journal().proofs([1], size=9)
    document["records"][0]["proof"] = str(proof)


def _other_key(document: dict[str, Any]) -> None:
    numbers = [each["number"] for each in document["records"]]
    for each, proof in zip(document["records"], decided_journal().proofs(numbers, key=OTHER), strict=True):
        each["proof"] = str(proof)


def _other_log(document: dict[str, Any]) -> None:
    """Signed by the same key, under the name of another space."""
    key = SignerKey("moot.example/spaces/other/log", Ed25519PrivateKey.from_private_bytes(b"k" * 32))
    numbers = [each["number"] for each in document["records"]]
    for each, proof in zip(document["records"], decided_journal().proofs(numbers, key=key), strict=True):
        each["proof"] = str(proof)


def _unsigned(document: dict[str, Any]) -> None:
    for each in document["records"]:
        each["proof"] = each["proof"].rpartition("\n\n")[0] + "\n\n"


TAMPERINGS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "proposer": _flip_claim("proposed", "by", to="eve"),
    "time of the proposal": _flip_claim("proposed", "at", to="2001-01-01T00:00:00.000Z"),
    "canonical bytes": _flip_claim("proposed", "canonical", to="{}"),
    "hash": _flip_claim("proposed", "sha256", to="0" * 64),
    "fingerprint": _flip_claim("ran", "fingerprint", to="0" * 64),
    "who decided": _flip_claim("decisions", 0, "by", to="eve"),
    "how": _flip_claim("decisions", 0, "how", to="rejected"),
    "a rule that was not": _flip_claim("decisions", 0, "rule", to="small"),
    "a passkey that was not": _flip_claim(
        "decisions", 0, "passkey", to={"credential": "a", "public_key": "a", "rp_id": "a", "origin": "a"}
    ),
    "grant": _flip_claim("grants", 0, "by", to="eve"),
    "capabilities": _flip_claim("grants", 0, "capabilities", to=[]),
    "subject": _flip_claim("identities", 0, "subject", to="eve@example"),
    "outcome": _flip_claim("answers", 0, "outcome", to="failed"),
    "hash of the answer": _flip_claim("answers", 0, "sha256", to=""),
    "origin": _flip_claim("origins", 0, "arguments", to={"to": "operator"}),
    "configuration": _flip_claim("configuration", "sha256", to="0" * 64),
    "state": _flip_claim("state", to="failed"),
    "a claim left out": lambda document: document["claims"].pop("grants"),
    "space": lambda document: document.update(space="other"),
    "about": lambda document: document.update(about="p2"),
    "unknown member": lambda document: document.update(trusted=True),
    "arguments in the line": _in_line(6, "1.5", "9.5"),
    "who in the line": _in_line(9, '"who":"ana"', '"who":"eve"'),
    "outcome in the line": _in_line(9, '"accepted"', '"refused!"'),
    "a second member in the line": _in_line(9, '"who":"ana"', '"who":"ana","who":"eve"'),
    "salt": _in_line(6, "salt", "Salt"),
    "number": _record(0, number=2),
    "role": _record(2, role="vote"),
    "withheld with another entry": _record(0, line="", entry="0" * 64),
    "withheld with none": _record(0, line="", entry=""),
    "line and entry": _record(0, entry="0" * 64),
    "proof cut": lambda document: document["records"][0].update(
        proof=document["records"][0]["proof"].replace("index 0\n", "index 0\n" + "A" * 43 + "=\n")
    ),
    "no proof": _record(0, proof=""),
    "index": lambda document: document["records"][0].update(
        proof=document["records"][0]["proof"].replace("index 0", "index 1")
    ),
    "order": _swap,
    "proofs swapped": _swap_proofs,
    "record left out": _drop(3),
    "decision left out": _drop(5),
    "all records left out": lambda document: document["records"].clear(),
    "record twice": lambda document: document["records"].append(document["records"][-1]),
    "an erased line with any content": _erased_line_with_any_content,
    "an answer to another call": _of_another_receipt,
    "a refused request": _refused_request,
    "older checkpoint": _older_checkpoint,
    "other key": _other_key,
    "other log": _other_log,
    "unsigned": _unsigned,
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_tampering_is_found_and_said(name: str) -> None:
    document = json.loads(decided_journal().receipt(withhold=()).as_bytes())
    assert problems(json.dumps(document).encode()) == []
    TAMPERINGS[name](document)
    found = problems(json.dumps(document).encode())
    assert found
    assert all(len(each.split()) > 3 for each in found)


def test_whatever_single_byte_is_changed_the_receipt_does_not_hold_or_says_the_same() -> None:
    raw = decided_journal().receipt(withhold=()).as_bytes()
    whole = msgspec.json.decode(raw)
    for place in range(0, len(raw), 41):
        changed = raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :]
        if not problems(changed):
            # A letter of white space, or one that stands for the same.
            assert msgspec.json.decode(changed) == whole
    for cut in range(0, len(raw) - 2, 997):
        assert problems(raw[:cut])


@pytest.mark.parametrize("late", [0, 299, 301, 10**9])
def test_what_a_witness_saw_was_not_made_later(late: int) -> None:
    """A gateway whose clock is ahead, or was set, gives its records times that they do not have."""
    witness = SignerKey("w.example", Ed25519PrivateKey.from_private_bytes(b"w" * 32), COSIGNATURE)
    policy = Policy(POLICY.logs, (Witness("w", witness.verifier),), {}, "w")
    receipt = decided_journal().receipt()
    proof = parse_inclusion_file(receipt.records[0].proof.encode())
    seen = cosign(proof.note, witness, 1_009 - late) if late < 1_009 else cosign(proof.note, witness, 1)
    # A second one of the same key is ignored, as others do: so is its time.
    forged = seen._replace(bytes=(2_000_000_000).to_bytes(8, "big") + seen.bytes[8:])
    signed = str(proof.note.with_signatures([seen, forged]))
    records = [
        msgspec.structs.replace(each, proof=each.proof.replace(str(proof.note), signed))
        for each in receipt.records
    ]
    receipt = msgspec.structs.replace(receipt, records=records)
    verdict = verify_receipt(receipt.as_bytes(), policy)
    assert verdict.ok == (late < 300)
    assert (
        verdict.ok
        or "record 9 says that it is of 1970-01-01T00:16:49.000Z, but w saw" in verdict.problems[-1]
    )
    assert list(verdict.witnesses) == ["w"]


def test_a_member_written_twice_is_no_receipt() -> None:
    raw = decided_journal().receipt().as_bytes().replace(b'"space"', b'"space": "other", "space"', 1)
    assert "this is no receipt" in problems(raw)[0]


def test_whoever_withholds_a_decision_has_to_withhold_what_hangs_on_it() -> None:
    journal = decided_journal()
    with pytest.raises(InvalidRequest, match="withhold that record, too"):
        journal.receipt(withhold={"request"})
    rest: Any = {"request", "response", "grant", "sign-in", "configuration"}
    receipt = journal.receipt(withhold=rest)
    assert problems(receipt) == []
    assert receipt.claims.decisions == []
    assert receipt.claims.state == "pending"


def test_the_published_schema_is_that_of_the_code() -> None:
    from pathlib import Path

    file = Path(__file__).parents[2] / "docs" / "reference" / "receipt.schema.json"
    assert json.loads(file.read_text("utf-8")) == receipt_schema()


def test_a_validator_of_others_takes_receipts_by_the_published_schema() -> None:
    validator = jsonschema_rs.validator_for(receipt_schema())
    receipts = [
        decided_journal().receipt(withhold=()), decided_journal().receipt(),
        signed_journal(SoftwareAuthenticator(b"ana's")).receipt(),
    ]  # fmt: skip
    for receipt in receipts:
        document = json.loads(receipt.as_bytes())
        validator.validate(document)
        for place, value in (("records", []), ("receipt", "moot/receipt/v2"), ("about", 1), ("more", True)):
            assert not validator.is_valid(document | {place: value}), place
