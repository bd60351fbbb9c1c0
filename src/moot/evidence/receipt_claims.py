"""What the records of a story say: the claims of its receipt.

Whoever makes a receipt and whoever verifies one derive the same claims here, from the lines alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec
import rfc8785

from moot.errors import InvalidPattern, PasskeyInvalid
from moot.evidence.receipt import (
    AnswerClaim,
    CallClaim,
    Claims,
    ConfigurationClaim,
    DecisionClaim,
    DelegationClaim,
    GrantClaim,
    IdentityClaim,
    OriginsClaim,
    PasskeyClaim,
    ReceiptFault,
    RuleClaim,
)
from moot.evidence.receipt_story import (
    LoggedMessage,
    Story,
    facts_of,
    named_rule,
    passkey_of,
    recipient_of,
    rule_name,
)
from moot.protocol import base64url
from moot.protocol.answer_marks import says_unknown
from moot.protocol.continuation import given_input, is_same_call, wanted_input
from moot.protocol.envelope import Envelope
from moot.protocol.exact_numbers import has_rounded_number
from moot.protocol.fingerprint import fingerprint
from moot.protocol.operation import Json
from moot.protocol.patterns import Rights, read_capabilities
from moot.protocol.proposal_life import ProposalLife
from moot.protocol.proposal_tracker import ProposalTracker
from moot.space.config import Name
from moot.space.tokens.passkey_proof import (
    VerificationKey,
    decision_challenge,
    read_assertion,
    verify_assertion,
)
from moot.store.journal_reader import JournalRecord

_HOW: Final = {"rejection": "rejected", "withdrawal": "withdrew", "vote": "voted", "settlement": "settled"}


def canonical_bytes(value: Json, raw: bytes = b"") -> bytes | None:
    """The form of RFC 8785; None where a number has more digits than that form can hold."""
    try:
        return None if raw and has_rounded_number(raw) else rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, RecursionError):
        return None


class _Life(ProposalTracker[ProposalLife]):
    keeps_origins = keeps_comments = False
    follows_runtime_ids = False


class ToldStory(Story):
    """A story, and what it tells. `partly` are the records of which fields are withheld."""

    def __init__(
        self, about: str, records: Sequence[JournalRecord], partly: Collection[int] = frozenset()
    ) -> None:
        super().__init__(about, records)
        self._partly = partly

    def claims(self, space: str) -> Claims:
        """What the records say. Raises ReceiptFault where a signature or a call is not what it should be."""
        claims = self._claims(space)
        return msgspec.convert(self._without_hashes(msgspec.to_builtins(claims)), Claims)

    def _without_hashes(self, claims: Json) -> Json:
        """Of what is withheld in part, a hash would be that of something else."""
        if isinstance(claims, list):
            return [self._without_hashes(each) for each in claims]
        if not isinstance(claims, dict):
            return claims
        is_partly = claims.get("record") in self._partly
        return {
            name: self._without_hashes(each)
            for name, each in claims.items()
            if not is_partly or name not in ("sha256", "fingerprint")
        }

    def _claims(self, space: str) -> Claims:
        calls = [self._call(each, each.record) for each in self._made_calls()]
        ran = self._check_ran()
        return Claims(
            state=self._state(),
            proposed=None if self.proposal is None else self._call(self.proposal, self.proposal.record),
            changed=self._call(self.changes[-1], self.changes[-1].record) if self.changes else None,
            decisions=[self._decision(each, space) for each in self.decisions],
            ran=calls[0] if ran and calls else None,
            answers=[_answer_claim(each) for each in self.messages("response")],
            origins=[_origins(each) for each in self.messages("origins")],
            rules=[_rule(each) for each in self.messages("rule")],
            grants=[self._grant(each) for each in self.messages("grant")],
            delegations=[
                DelegationClaim(**each.facts(), to=str(each.envelope.payload["to"]))
                for each in self.messages("delegation")
            ],
            identities=[_identity(each) for each in self.with_role("sign-in")],
            configuration=next(map(_configuration, self.with_role("configuration")), None),
        )

    def _made_calls(self) -> list[LoggedMessage]:
        return [
            each._replace(envelope=request)
            for each in self.decisions
            for request in each.requests
            if given_input(request.payload.get("params")) is None
        ]

    def _check_ran(self) -> bool:
        made = self._made_calls()
        shown = self.changes[-1] if self.changes else self.proposal
        for each in made:
            if shown is not None and not is_same_call(shown.envelope.raw, each.envelope.raw):
                raise ReceiptFault(
                    f"the call in record {each.record.number} is not the one in record {shown.record.number}"
                )
        return bool(made)

    @staticmethod
    def _call(message: LoggedMessage, record: JournalRecord) -> CallClaim:
        envelope = message.envelope
        payload = envelope.payload
        body = {name: payload[name] for name in ("method", "params") if name in payload}
        canonical = canonical_bytes(body, envelope.raw)
        return CallClaim(
            **facts_of(record),
            id=envelope.id,
            to=list(envelope.to),
            method=str(payload.get("method")),
            fingerprint=fingerprint(envelope.raw),
            canonical="" if canonical is None else canonical.decode(),
            sha256="" if canonical is None else sha256(canonical).hexdigest(),
        )

    def _decision(self, message: LoggedMessage, space: str) -> DecisionClaim:
        envelope, role = message.envelope, self.roles[message.record.number]
        reason = envelope.payload.get("reason", envelope.payload.get("note"))
        how: Any = _HOW.get(role) or (
            "gave input" if given_input(envelope.payload.get("params")) is not None
            else "called" if envelope.id == self.about else "approved"
        )  # fmt: skip
        named = {rule_name(each.envelope) for each in self.messages("rule")
                 if each.envelope.id in envelope.correlation_id}  # fmt: skip
        return DecisionClaim(
            **message.facts(),
            id=envelope.id,
            how=how,
            reason=reason if isinstance(reason, str) else "",
            rule=named_rule(envelope) or next(iter(named), ""),
            passkey=self._passkey(message, space),
        )

    def _passkey(self, message: LoggedMessage, space: str) -> PasskeyClaim | None:
        """The key that signed a vote; None if there is none, or a record that is needed is not shown."""
        given = message.envelope.payload.get("passkey")
        if given is None or self.proposal is None:
            return None
        proposal, number = self.proposal, message.record.number
        if not {number, proposal.record.number}.isdisjoint(self._partly):
            return None
        try:
            assertion = read_assertion(given)
            added = [each for each in self.with_role("passkey") if each.number < number]
            key = next((key for each in added if (key := passkey_of(each))["id"] == assertion.credential_id),
                       None)  # fmt: skip
            if key is None:
                return None
            if key.get("member") != message.who:
                raise ReceiptFault(f"record {number} is of {message.who}, but its passkey is somebody else's")
            challenge = decision_challenge(
                space, SignedProposal(self.about, proposal.record.time, fingerprint(proposal.envelope.raw)),
                Name(message.who), "approve", nonce=assertion.nonce, expires=assertion.expires,
            )  # fmt: skip
            found = VerificationKey(base64url.decode(key["public_key"]), key["rp_id"], key["origin"], 0)
            verify_assertion(found, assertion, challenge)
        except PasskeyInvalid as fault:
            raise ReceiptFault(f"the passkey of record {number}: {fault}") from None
        except (KeyError, ValueError, TypeError):
            raise ReceiptFault(f"the passkey of record {number} cannot be read") from None
        return PasskeyClaim(
            credential=key["id"], public_key=key["public_key"], rp_id=key["rp_id"], origin=key["origin"]
        )

    def _grant(self, message: LoggedMessage) -> GrantClaim:
        given = message.envelope.payload.get("capabilities")
        to = recipient_of(message.envelope)
        decided = [each for each in self.decisions if to in (each.who, each.envelope.sender)]
        if decided and not any(grants(message.envelope, each.envelope) for each in decided):
            raise ReceiptFault(
                f"the grant in record {message.record.number} does not cover what {to} decided"
            )
        capabilities = given if isinstance(given, list) else []
        return GrantClaim(**message.facts(), id=message.envelope.id, to=to, capabilities=capabilities)

    def _state(self) -> str:
        if self.proposal is None:
            outcomes = [_answer_claim(each).outcome for each in self.messages("response")]
            return outcomes[-1] if outcomes else "called" if self.requests else "not shown"
        first = self.proposal
        tracker = _Life()
        life = tracker.track(
            ProposalLife(
                id=self.about, proposer=first.envelope.sender or first.who, proposer_name=first.who,
                proposed_at=first.record.time,
            )
        )  # fmt: skip
        for each in self.accepted:
            if self.roles[each.record.number] in ("proposal", "change"):
                continue
            tracker.apply(each.envelope, each.record.time, each.who)
            for request in each.made:
                tracker.apply(request, each.record.time, each.who)
        # It stays open until its proposer withdraws it; what was decided so far is a no.
        return "rejected" if life.status == "pending" and life.rejections else life.state


class SignedProposal(NamedTuple):
    """What a decision is signed over, of its proposal."""

    id: str
    proposed_at: float
    fingerprint: str


def grants(grant: Envelope, decision: Envelope) -> bool:
    """Whether a grant allows a message of this kind with this payload."""
    try:
        rights = Rights(read_capabilities(grant.payload.get("capabilities")))
    except InvalidPattern:
        return False
    return rights.allow(decision.kind, decision.payload, decision.to)


def _answer_claim(message: LoggedMessage) -> AnswerClaim:
    payload = message.envelope.payload
    error, result = payload.get("error"), payload.get("result")
    outcome: Any = "done"
    if error is not None:
        outcome = "unknown" if says_unknown(error) else "failed"
    elif isinstance(result, dict) and result.get("isError") is True:
        outcome = "failed"
    elif wanted_input(result) is not None:
        outcome = "asks for input"
    body = {name: payload[name] for name in ("result", "error") if name in payload}
    return AnswerClaim(
        **message.facts(), id=message.envelope.id, outcome=outcome,
        sha256=_hash(body, message.envelope.raw),
    )  # fmt: skip


def _origins(message: LoggedMessage) -> OriginsClaim:
    rows = message.envelope.payload.get("arguments")
    found = {
        str(row.get("path")): str(row.get("origin")) for row in rows or () if isinstance(row, dict)
    } if isinstance(rows, list) else {}  # fmt: skip
    return OriginsClaim(**message.facts(), arguments=found)


def _rule(message: LoggedMessage) -> RuleClaim:
    rule = message.envelope.payload.get("rule")
    return RuleClaim(**message.facts(), name=rule_name(message.envelope), sha256=_hash(rule))


def _identity(record: JournalRecord) -> IdentityClaim:
    told = record.fields.get("sign_in")
    details = told.get("details") if isinstance(told, dict) else None
    details = details if isinstance(details, dict) else {}
    return IdentityClaim(
        **facts_of(record), issuer=str(details.get("issuer", "")), subject=str(details.get("subject", ""))
    )


def _configuration(record: JournalRecord) -> ConfigurationClaim:
    return ConfigurationClaim(**facts_of(record), sha256=_hash(record.fields.get("config")))


def _hash(value: Json, raw: bytes = b"") -> str:
    canonical = canonical_bytes(value, raw)
    return "" if canonical is None else sha256(canonical).hexdigest()
