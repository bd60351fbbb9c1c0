"""Journals of a few records in memory, their log, and receipts out of them."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from hashlib import sha256
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from moot.evidence.checkpoint import Checkpoint
from moot.evidence.inclusion_file import InclusionFile
from moot.evidence.merkle_tree import inclusion_proof, leaf_hash, root_of
from moot.evidence.receipt import WITHHELD, Receipt, Role
from moot.evidence.receipt_claims import SignedProposal
from moot.evidence.receipt_maker import find_records, make_receipt
from moot.evidence.signed_note import SignerKey
from moot.evidence.tiles import subtree_from
from moot.evidence.witness_policy import KnownLog, Policy
from moot.protocol.fingerprint import fingerprint
from moot.protocol.operation import Json
from moot.space.config import Name
from moot.space.tokens.passkey_proof import decision_challenge
from moot.store.journal_reader import START, JournalRecord
from moot.store.journal_search import JournalQuery
from tests.authenticator import ORIGIN as PAGE
from tests.authenticator import SoftwareAuthenticator

ORIGIN: Final = "moot.example/spaces/lab/log"
KEY_BYTES: Final = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
KEY: Final = SignerKey(ORIGIN, KEY_BYTES)
POLICY: Final = Policy((KnownLog(KEY.verifier),), (), {}, "none")
PAY: Final[Json] = {
    "method": "tools/call",
    "params": {"name": "pay", "arguments": {"amount": 1.50, "to": "é"}},
}
RESULT: Final[Json] = {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "paid"}]}}


def envelope(who: str, kind: str, payload: Json, id: str, about: Sequence[str]) -> dict[str, Json]:
    fields = {"protocol": "mew/v0.4", "id": id, "ts": "2001-09-09T01:46:40.000Z", "from": who}
    return fields | {"to": ["host"], "kind": kind, "correlation_id": list(about), "payload": payload}


class Journal:
    """Records as a gateway writes them."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def add(self, **members: Json) -> int:
        number = len(self.lines) + 1
        fields = {"n": number, "t": 1_000.0 + number} | members | {"s": f"salt{number:018}"}
        self.lines.append(json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode() + b"\n")
        return number

    def say(self, who: str, kind: str, payload: Json, *, id: str = "", about: Sequence[str] = (),
            out: str = "accepted", context: str = "", **more: Json) -> int:  # fmt: skip
        id = id or f"m{len(self.lines) + 1}"
        raw = envelope(who, kind, payload, id, about)
        if context:
            raw["context"] = context
        members: dict[str, Json] = {"id": id, "in": "receive", "session": f"s-{who}", "who": who,
                                    "dialect": "mew", "kind": kind, "out": out}  # fmt: skip
        return self.add(**members, **more, raw=raw)

    @property
    def records(self) -> list[JournalRecord]:
        return [JournalRecord(number, line, START) for number, line in enumerate(self.lines, 1)]

    def proofs(self, numbers: Sequence[int], key: SignerKey = KEY, size: int = 0) -> list[InclusionFile]:
        lines = self.lines[: size or None]
        leaves = [leaf_hash(sha256(line[:-1]).digest()) for line in lines]
        subtree = subtree_from(lambda _level, first, count: b"".join(leaves[first : first + count]))
        checkpoint = Checkpoint(key.verifier.name, len(lines), root_of(len(lines), subtree))
        note = checkpoint.signed(key)
        return [
            InclusionFile(each - 1, inclusion_proof(each - 1, len(lines), subtree), note, checkpoint)
            for each in numbers
        ]

    def receipt(self, id: str = "p1", withhold: Collection[Role] = WITHHELD,
                fields: Collection[str] = (), **log: Any) -> Receipt:  # fmt: skip
        def find(query: JournalQuery) -> list[JournalRecord]:
            return [each for each in self.records if query.matches(each)]

        about, records = find_records(find, id)
        return make_receipt(
            "lab", about, records, lambda numbers: self.proofs(numbers, **log), withhold,
            fields=fields, signer=lambda origin: SignerKey(origin, KEY_BYTES),
        )  # fmt: skip


def decided_journal() -> Journal:
    """An agent's payment, approved by ana by a right that bob gave her, who signed in with a provider."""
    journal = Journal()
    journal.add(**{"in": "reload", "config": {"name": "lab", "participants": {}}})
    details = {"issuer": "https://id.example", "subject": "ana@example"}
    told = {"token": {"hash": "0" * 64}, "details": details}
    journal.add(**{"in": "sign_in", "who": "ana", "out": "accepted", "sign_in": told})
    journal.add(**{"in": "join", "who": "ana", "session": "s-ana", "options": {"token": "1" * 64}})
    rights = [{"kind": "mcp/*"}]
    journal.say("bob", "capability/grant", {"recipient": "ana", "capabilities": rights}, id="g1")
    journal.say("dora", "chat", {"text": "hello"})
    journal.say("agent", "mcp/proposal", PAY, id="p1")
    origins = [{"path": "to", "origin": "person", "text": "dora said so"}]
    journal.say("approver", "moot/origins", {"arguments": origins}, about=["p1"])
    journal.say("mallory", "mcp/request", PAY, id="evil", about=["p1"], out="capability_violation")
    journal.say("ana", "mcp/request", {"jsonrpc": "2.0", "id": 1} | PAY, id="r1", about=["p1"])
    journal.say("host", "mcp/response", RESULT, id="a1", about=["r1"])
    journal.say("dora", "chat", {"text": "bye"})
    return journal


def signed_journal(key: SoftwareAuthenticator) -> Journal:
    """A call that ana confirmed with a passkey; her vote made the gateway call."""
    journal = Journal()
    added = {"id": key.id, "member": "ana", "public_key": key.public_key, "rp_id": key.rp_id, "origin": PAGE}
    journal.add(**{"in": "passkey_add", "passkey": {"key": added}})
    number = journal.say("agent", "mcp/proposal", PAY, id="p1")
    raw = journal.records[-1].envelope or b""
    about = SignedProposal("p1", 1_000.0 + number, fingerprint(raw))
    challenge = decision_challenge("lab", about, Name("ana"), "approve", nonce="n", expires=1_100.0)
    made = envelope("ana", "mcp/request", {"jsonrpc": "2.0", "id": "r1"} | PAY, "r1", ["p1"])
    confirmed = key.sign(challenge) | {"nonce": "n", "expires": 1_100.0}
    journal.say("ana", "moot/approve", {"passkey": confirmed}, id="v1", about=["p1"], made=[made])
    journal.say("host", "mcp/response", RESULT, id="a1", about=["r1"])
    return journal
