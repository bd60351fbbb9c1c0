"""The records of a journal that are about one proposal, or one call, sorted by what they are.

Each must have to do with it; a message counts only as far as the gateway accepted it, and under the name by
which the gateway knew its sender.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from moot.errors import MalformedEnvelope
from moot.evidence.receipt import ReceiptFault, Role
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import ANY_SIZE, Envelope, rfc3339
from moot.protocol.kinds import CANCELLED
from moot.protocol.proposal_life import RULE_CONTEXT, RULE_KINDS
from moot.store.journal_reader import JournalRecord

_MESSAGES: Final = frozenset({"receive", "post"})
_DECISIONS: Final = {
    "mcp/request": "request",
    "mcp/reject": "rejection",
    "mcp/withdraw": "withdrawal",
    "moot/approve": "vote",
    "moot/settle": "settlement",
}
_CONFIGURATION: Final = frozenset({"reload", "state", "repair"})


class LoggedMessage(NamedTuple):
    """An accepted message with its record; of a vote, the requests that the gateway made by it."""

    record: JournalRecord
    envelope: Envelope
    made: Sequence[Envelope] = ()

    @property
    def who(self) -> str:
        return self.record.text("who")

    @property
    def requests(self) -> list[Envelope]:
        own = [self.envelope] if self.envelope.kind == "mcp/request" else []
        return [*own, *self.made]

    def facts(self) -> dict[str, Any]:
        return facts_of(self.record)


def read_message(record: JournalRecord) -> LoggedMessage | None:
    """The message of a record; None if it is no message, or was not accepted."""
    spoken = record.text("dialect") or "mew"
    dialect = next((each for name, each in DIALECTS.items() if name == spoken), None)
    if record.text("in") not in _MESSAGES or record.text("out") != "accepted" or dialect is None:
        return None
    try:
        raw = record.envelope
        protocols = frozenset(p for p in (record.envelope_fields.get("protocol"),) if isinstance(p, str))
        envelope = None if raw is None else dialect.decode(raw, ANY_SIZE, accept_protocols=protocols)
        made = [DIALECTS["mew"].decode(each, ANY_SIZE) for each in record.made]
    except (MalformedEnvelope, msgspec.MsgspecError):
        return None
    if envelope is None:
        return None
    if not envelope.id:
        # The gateway gave it one, and wrote it beside the sender's own bytes.
        envelope = msgspec.structs.replace(envelope, id=record.id)
    return LoggedMessage(record, envelope, made if envelope.kind == "moot/approve" else ())


class Story:
    """The records about one proposal, or one call without one, sorted by what they are.

    Raises ReceiptFault for a record that has nothing to do with it, or does not fit the others.
    """

    def __init__(self, about: str, records: Sequence[JournalRecord]) -> None:
        self.about = about
        self.roles: dict[int, Role] = {}
        self._records = records
        self.accepted = [found for each in records if (found := read_message(each)) is not None]
        self.proposal = self._main()
        self.changes: list[LoggedMessage] = []
        self.decisions = self._take_decisions()
        self.requests = [request for each in self.decisions for request in each.requests]
        for each in self.accepted:
            self._take_message(each)
        known = {each.record.number for each in self.accepted}
        for record in records:
            if record.number not in known:
                self._take_other(record)

    # Which record is what

    @property
    def names(self) -> set[str]:
        """Who proposed and who decided."""
        found = {each.who for each in self.decisions}
        return found if self.proposal is None else found | {self.proposal.who}

    def _main(self) -> LoggedMessage | None:
        found = [
            each for each in self.accepted
            if each.envelope.id == self.about and each.envelope.kind == "mcp/proposal"
        ]  # fmt: skip
        if len(found) > 1:
            raise ReceiptFault(f"two records say that they are the proposal {self.about}")
        for each in found:
            self.roles[each.record.number] = "proposal"
        return found[0] if found else None

    def _take_decisions(self) -> list[LoggedMessage]:
        found = []
        for each in self.accepted:
            role = _DECISIONS.get(each.envelope.kind)
            is_call = each.envelope.id == self.about and each.envelope.kind == "mcp/request"
            if role is None or not (is_call or self.about in each.envelope.correlation_id):
                continue
            if self.proposal is not None and each.record.number < self.proposal.record.number:
                raise ReceiptFault(
                    f"record {each.record.number} decides on {self.about} before record "
                    f"{self.proposal.record.number} proposes it"
                )
            if each.envelope.payload.get("method") == CANCELLED:
                continue
            self.roles[each.record.number] = role  # type: ignore[assignment]  # of the table above
            found.append(each)
        return found

    def _take_message(self, message: LoggedMessage) -> None:
        number, envelope = message.record.number, message.envelope
        if number in self.roles:
            return
        about = set(envelope.correlation_id)
        last = max((each.record.number for each in self.decisions), default=0)
        role: Role | None = None
        match envelope.kind:
            case "mcp/proposal" if self.about in about:
                if any(envelope.id in request.correlation_id for request in self.requests):
                    role = "change"
                    self.changes.append(message)
            case "mcp/response" if about & {request.id for request in self.requests}:
                role = "response"
                if number < self._asked_at(about):
                    raise ReceiptFault(f"record {number} answers a request that comes after it")
            case "moot/origins" if self.about in about:
                role = "origins"
            case "trust/rule" | "trust/accept" if self._is_applied(envelope) and number < last:
                role = "rule"
            case "capability/grant" if number < last:
                role = "grant" if recipient_of(envelope) in self._holders() else None
            case "moot/delegate" if number < last and envelope.payload.get("to") in self._deciders():
                role = "delegation"
        if role is None:
            raise self._unrelated(number)
        self.roles[number] = role

    def _take_other(self, record: JournalRecord) -> None:
        number, kind = record.number, record.text("in")
        last = max((each.record.number for each in self.decisions), default=0)
        role: Role | None = None
        if record.text("out") in ("", "accepted") and number < last:
            if kind == "sign_in" and record.text("who") in self.names:
                role = "sign-in"
            elif kind == "passkey_add" and passkey_of(record).get("id") in self._credentials():
                role = "passkey"
            elif kind in _CONFIGURATION:
                role = "configuration"
        if role is None:
            raise self._unrelated(number)
        self.roles[number] = role

    def _unrelated(self, number: int) -> ReceiptFault:
        return ReceiptFault(
            f"record {number} has nothing to do with {self.about}, as far as the records that are shown say, "
            "or was not accepted by the gateway"
        )

    def _asked_at(self, about: Collection[str]) -> int:
        return min(
            each.record.number for each in self.decisions if any(one.id in about for one in each.requests)
        )

    def _is_applied(self, envelope: Envelope) -> bool:
        """Whether a message tells of the rule that made one of the decisions."""
        name = rule_name(envelope)
        return any(
            envelope.id in each.envelope.correlation_id or (name and name == named_rule(each.envelope))
            for each in self.decisions
        )

    def _deciders(self) -> set[str]:
        return {name for each in self.decisions for name in (each.who, each.envelope.sender) if name}

    def _holders(self) -> set[str]:
        """Whose rights a decision rests on: whoever decided, and whoever gave them a right."""
        found = self._deciders()
        for each in reversed(self.accepted):
            if each.envelope.kind == "capability/grant" and recipient_of(each.envelope) in found:
                found |= {each.who, each.envelope.sender}
        return found

    def _credentials(self) -> set[str]:
        given = (each.envelope.payload.get("passkey") for each in self.decisions)
        return {str(each.get("credential_id")) for each in given if isinstance(each, dict)}

    def with_role(self, role: Role) -> Iterator[JournalRecord]:
        return (each for each in self._records if self.roles.get(each.number) == role)

    def messages(self, role: Role) -> Iterator[LoggedMessage]:
        return (each for each in self.accepted if self.roles.get(each.record.number) == role)


def rule_name(envelope: Envelope) -> str:
    """The rule that a message of an approver tells of."""
    rule = envelope.payload.get("rule") if envelope.kind in RULE_KINDS else None
    name = rule.get("name") if isinstance(rule, dict) else rule
    return name if isinstance(name, str) else ""


def recipient_of(envelope: Envelope) -> str:
    found = envelope.payload.get("recipient")
    return found if isinstance(found, str) else ""


def passkey_of(record: JournalRecord) -> dict[str, Any]:
    told = record.fields.get("passkey")
    key = told.get("key") if isinstance(told, dict) else None
    return key if isinstance(key, dict) else {}


def facts_of(record: JournalRecord) -> dict[str, Any]:
    return {"record": record.number, "by": record.text("who"), "at": rfc3339(record.time)}


def named_rule(envelope: Envelope) -> str:
    """The rule that a decision says made it."""
    context, named = envelope.context or "", envelope.payload.get("rule")
    if context.startswith(RULE_CONTEXT):
        return context[len(RULE_CONTEXT) :]
    return named if envelope.kind == "mcp/reject" and isinstance(named, str) else ""
