"""Everything that can go wrong, as one tree.

    MootError
    ├── Refused                 they broke the protocol; answered, never logged as an error
    │   ├── MalformedEnvelope   the bytes are no envelope of this dialect (ladder step 1)
    │   │   ├── InvalidJson         invalid_json
    │   │   ├── InvalidEnvelope     invalid_envelope
    │   │   └── ProtocolMismatch    protocol_mismatch
    │   ├── RateLimited             rate_limited             step 2
    │   ├── AuthViolation           auth_violation           step 3
    │   ├── ParticipantPaused       participant_paused       step 4
    │   ├── ParticipantShutdown     participant_shutdown     step 4
    │   ├── DuplicateId             duplicate_id             step 5
    │   ├── CapabilityViolation     capability_violation     steps 6 and 8
    │   ├── KindPayloadMismatch     kind_payload_mismatch    step 7
    │   ├── Unauthorized            unauthorized             steps 9 to 11
    │   ├── RequestNotFound         request_not_found        step 9
    │   ├── AlreadyAnswered         already_answered         step 9
    │   ├── ProposalSettled         proposal_settled         step 10
    │   ├── ProposalMismatch        proposal_mismatch        step 10
    │   ├── ApprovalRequired        approval_required        steps 10 and 13
    │   ├── InvalidRequest          invalid_request          step 11
    │   │   └── InvalidPattern      a capability that cannot be read
    │   ├── InvalidOperation        invalid_operation        step 11
    │   ├── ParticipantNotFound     participant_not_found    step 11
    │   ├── TargetNotFound          target_not_found         steps 10 and 11
    │   ├── TargetAbsent            target_absent            step 10
    │   ├── StreamNotFound          stream_not_found         step 11 and frames
    │   ├── UnauthorizedStreamWrite unauthorized_stream_write   frames
    │   ├── Unavailable             unavailable              step 12
    │   ├── OutcomeUnknown          outcome_unknown          over HTTP only, after the ladder
    │   ├── ResourceLimit           resource_limit           step 13
    │   └── BudgetExceeded          budget_exceeded          step 13
    ├── UsageError              we were misused: a caller's mistake, a bad configuration
    │   └── FolderInUse         another process works in this folder
    ├── NotOnDisk               a gateway stopped before all of it was on disk
    └── (taking part)           what a member of a space meets; drawn at the end of this file

Each `Refused` carries the word that the wire uses (`code`), a sentence for a person
(`message`) and what else the answer should say (`details`). Three more words are only ever
told to someone whose act was accepted: `WARNING_CODES`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

# In a `system/error` these are no refusal: it was done, and there is something to know about it.
WARNING_CODES: Final = frozenset({"revoke_incomplete", "unsupported_by_recipient", "not_on_disk"})


class MootError(Exception):
    """Anything Moot raises on purpose."""


class UsageError(MootError):
    """Moot was called or configured in a way that cannot work; the text says what to change."""


class EnvelopeTooLarge(UsageError):
    """A message is larger than the space takes, or a value than its gateway keeps."""

    def __init__(self, size: int, most: int) -> None:
        super().__init__(f"a message or value of {size} bytes: the space takes {most} bytes at most")
        self.size = size
        self.most = most


class FolderInUse(UsageError):
    """Another process works in this folder; the text names the folder, and says what to do."""


class NotOnDisk(MootError):
    """A gateway has stopped, and not everything that it accepted is on disk."""


class Refused(MootError):
    """A peer asked for something it does not get (MEW 3.8.2, D-42)."""

    code: ClassVar[str] = "refused"
    # The envelope that is refused and its kind, where it never reached the ladder.
    about: str | None = None
    kind: str | None = None

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class MalformedEnvelope(Refused):
    """The bytes are no envelope; `about` and `kind` are what could be read of it all the same."""

    code = "invalid_envelope"

    def __init__(self, message: str, *, about: str | None = None, kind: str | None = None) -> None:
        super().__init__(message)
        self.about = about
        self.kind = kind


class InvalidJson(MalformedEnvelope):
    """D-83: not one JSON value that every reader reads alike."""

    code = "invalid_json"


class InvalidEnvelope(MalformedEnvelope):
    """MEW 3: JSON, but a field is missing or of the wrong shape."""

    code = "invalid_envelope"


class ProtocolMismatch(MalformedEnvelope):
    """MEW 6.1, D-06: another protocol or version than this connection speaks."""

    code = "protocol_mismatch"


class RateLimited(Refused):
    """Too many messages or bytes in too short a time; `retry_after` says when to come back."""

    code = "rate_limited"


class AuthViolation(Refused):
    """MEW 4.1, D-05: `from` names somebody else."""

    code = "auth_violation"


class ParticipantPaused(Refused):
    """MEW 3.9.1, D-25: paused members send little."""

    code = "participant_paused"


class ParticipantShutdown(Refused):
    """MEW 3.9.10, D-26: shut down until it rejoins."""

    code = "participant_shutdown"


class DuplicateId(Refused):
    """D-07: an id names one envelope."""

    code = "duplicate_id"


class CapabilityViolation(Refused):
    """MEW 4.2: no capability of the sender matches."""

    code = "capability_violation"


class KindPayloadMismatch(Refused):
    """D-48, D-49: the kind claims another operation than the payload holds."""

    code = "kind_payload_mismatch"


class Unauthorized(Refused):
    """The capability is there, but this object belongs to someone else (D-28, D-37, D-80)."""

    code = "unauthorized"


class RequestNotFound(Refused):
    """A response that answers nothing: it names no request that is known here."""

    code = "request_not_found"


class AlreadyAnswered(Refused):
    """A second response of one member to one request, or one to a notification."""

    code = "already_answered"


class ProposalSettled(Refused):
    """D-28: fulfilled, withdrawn or expired already."""

    code = "proposal_settled"


class ProposalMismatch(Refused):
    """D-28: not what was proposed."""

    code = "proposal_mismatch"


class ApprovalRequired(Refused):
    """D-28: the space asks for more approvals first."""

    code = "approval_required"


class InvalidRequest(Refused):
    """The payload of a kind that the gateway itself executes has the wrong shape."""

    code = "invalid_request"


class InvalidPattern(InvalidRequest):
    """D-12, D-13: a capability that cannot be read, or whose limits would be ignored."""


class InvalidOperation(Refused):
    """Well formed, but makes no sense: kicking oneself, granting to oneself."""

    code = "invalid_operation"


class ParticipantNotFound(Refused):
    """Nobody of that name in this space."""

    code = "participant_not_found"


class TargetNotFound(Refused):
    """MEW 3.10.1, D-100: a stream names a receiver, or an approved proposal a host, that is unknown here."""

    code = "target_not_found"


class TargetAbsent(Refused):
    """D-100: the host of an approved proposal is not connected; the proposal stays open."""

    code = "target_absent"


class StreamNotFound(Refused):
    """MEW 3.10.5: the stream named is not open in this space."""

    code = "stream_not_found"


class UnauthorizedStreamWrite(Refused):
    """D-36: a frame from someone who may not write to that stream."""

    code = "unauthorized_stream_write"


class Unavailable(Refused):
    """D-85: the journal cannot be written, so nothing that must be audited happens."""

    code = "unavailable"


class OutcomeUnknown(Refused):
    """D-97: accepted, but the journal failed before it was on disk. Look for its id before you repeat it."""

    code = "outcome_unknown"


class ResourceLimit(Refused):
    """A limit of the configuration is reached; `limit` names it."""

    code = "resource_limit"


class BudgetExceeded(Refused):
    """A call would pass a budget of the space, or its amount cannot be told; `budget` names it."""

    code = "budget_exceeded"


# Taking part: what `moot.participant` and `moot.net.websocket_client` raise.
#
#    MootError
#    ├── Unreachable             nobody answers at that address
#    ├── ConnectionClosed        it ended for good; code and reason say how
#    │   └── NotAdmitted         it never began: token, space or name are not right
#    ├── ConnectionLost          it went away for now; what was waited for may have been missed
#    │   └── ResultMissed            it was carried out, and its result passed while we were away
#    ├── NotAllowed              own rights do not allow this (said before anything is sent)
#    ├── Paused                  somebody paused us (MEW 3.9.1)
#    ├── OutboxFull              more was sent than the gateway takes at once
#    ├── TimedOut                nobody answered in time
#    ├── ReasoningCancelled      somebody asked us to stop thinking (MEW 3.5.5)
#    ├── CallFailed              an operation brought no result
#    │   ├── McpError                the host answered a JSON-RPC error; hosts raise it too
#    │   ├── ToolFailed              the tool answered isError
#    │   ├── BadAnswer               the host answered something that is no MCP answer
#    │   ├── MemberLeft              the host is not here, and nothing was sent to it
#    │   ├── CallOutcomeUnknown      whether it was carried out is not known: look before doing it again
#    │   │   ├── HostLeft                the host left and has not answered; also a MemberLeft
#    │   │   ├── HostDoesNotKnow         the host answered that it cannot tell; also an McpError
#    │   │   ├── ClosedWhileWaiting      we are out before the answer came; also a ConnectionClosed
#    │   │   ├── AnswerTimedOut          no answer came in time; also a TimedOut
#    │   │   └── FulfilmentCancelled     whoever fulfilled the proposal called it off
#    │   ├── Interrupted             a restart ended it (MEW 3.9.9)
#    │   ├── Rejected                somebody declined the proposal (MEW 3.3.2)
#    │   ├── VoteCounted             our approval was a vote, and it was not the last one (D-103)
#    │   ├── Withdrawn               the proposal was taken back (MEW 3.3.1)
#    │   ├── Expired                 the proposal is too old (MEW 10.2)
#    │   └── UnsupportedByRecipient  a control for somebody whose dialect has no such thing
#    └── Refused                 the gateway said no; a word that we do not know is in `details`


class Unreachable(MootError):
    """No gateway could be reached at an address."""


class ConnectionClosed(MootError):
    """The connection ended and will not come back by itself."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"the connection is closed: {code} {reason}".rstrip())
        self.code = code
        self.reason = reason


class NotAdmitted(ConnectionClosed):
    """The gateway let us not in; `status` is its HTTP status, 0 when it said so on the socket."""

    def __init__(self, message: str, *, status: int = 0, code: int = 1008) -> None:
        super().__init__(code, message)
        self.args = (message,)
        self.status = status


class ConnectionLost(MootError):
    """The connection is away; what happens meanwhile is not heard."""


class ResultMissed(ConnectionLost):
    """It was carried out, and its result passed while we were away; `outcome` is `done` or `failed`."""

    def __init__(self, outcome: str) -> None:
        self.outcome = outcome
        super().__init__(f"it was carried out ({outcome}); its result was missed while we were away")


class NotAllowed(MootError):
    """The welcome's capabilities allow neither this nor a way around it; `missing` names what would."""

    def __init__(self, message: str, *, missing: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.missing = missing


class Paused(MootError):
    """MEW 3.9.1: nothing but acknowledgements and cancellations leaves us until the pause ends."""

    def __init__(self, by: str, reason: str | None, seconds_left: float | None) -> None:
        left = "until participant/resume" if seconds_left is None else f"for {seconds_left:.1f} s more"
        super().__init__(f"paused by {by} {left}" + (f": {reason}" if reason else ""))
        self.by = by
        self.reason = reason
        self.seconds_left = seconds_left


class OutboxFull(MootError):
    """More waits to be sent than `outbox_bytes`; wait, or send less."""


class TimedOut(MootError, TimeoutError):
    """A bound was reached; the text names it."""


class ReasoningCancelled(MootError):
    """MEW 3.5.5: somebody ended this sequence."""

    def __init__(self, by: str, reason: str | None) -> None:
        super().__init__(f"{by} cancelled this reasoning" + (f": {reason}" if reason else ""))
        self.by = by
        self.reason = reason


class CallFailed(MootError):
    """An operation was asked for and brought no result."""


class McpError(CallFailed):
    """A JSON-RPC error. A host raises it to answer with exactly this code, message and data."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = data


class ToolFailed(CallFailed):
    """The tool ran and says that it failed; `result` is its whole answer."""

    def __init__(self, tool: str, text: str, result: dict[str, Any]) -> None:
        super().__init__(f"{tool}: {text}" if text else f"{tool} failed and gave no reason")
        self.tool = tool
        self.text = text
        self.result = result


class BadAnswer(CallFailed):
    """The member that was asked answered something that is no answer."""

    def __init__(self, member: str, fault: str) -> None:
        super().__init__(f"{member} answered something that is no MCP answer: {fault}")
        self.member = member
        self.fault = fault


class MemberLeft(CallFailed):
    """The member that was asked is not here; it was sent nothing (but see HostLeft)."""

    def __init__(self, member: str) -> None:
        super().__init__(f"{member} is not here, so nothing was carried out")
        self.member = member


class CallOutcomeUnknown(CallFailed):
    """D-99: it may have been carried out or not; nobody must take that for a failure and do it again."""


class HostLeft(CallOutcomeUnknown, MemberLeft):
    """The member that was asked left before it answered."""

    def __init__(self, member: str) -> None:
        CallFailed.__init__(
            self, f"{member} left before it answered: the outcome is unknown, so check before doing it again"
        )
        self.member = member


class HostDoesNotKnow(CallOutcomeUnknown, McpError):
    """The host passed it on and got no readable answer; it says so in `data` (`moot/outcome`: `unknown`)."""


class ClosedWhileWaiting(CallOutcomeUnknown, ConnectionClosed):
    """It was sent, and the connection ended before an answer came."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)
        self.args = (
            f"the connection was closed ({f'{code} {reason}'.rstrip()}) before an answer came: "
            "whether it was done is not known",
        )


class AnswerTimedOut(CallOutcomeUnknown, TimedOut):
    """Somebody was asked and did not answer in time."""


class Interrupted(CallFailed):
    """MEW 3.9.9: a restart of this member ended what it was waiting for."""


class Rejected(CallFailed):
    """MEW 3.3.2: a proposal was declined; `reason` is a code of MEW 3.3.3 or the rejecter's own words."""

    def __init__(self, by: str, reason: str, rejections: tuple[Any, ...] = ()) -> None:
        super().__init__(f"{by} rejected the proposal: {reason}")
        self.by = by
        self.reason = reason
        self.rejections = rejections

    async def explanation(self, timeout_seconds: float = 5.0, *, within: float | None = None) -> str | None:
        """Wait for the explanation of the rejecter, which it may send as chat; None if none comes in time.

        `within` is what 0.1 called the time.
        """
        timeout_seconds = timeout_seconds if within is None else within
        for rejection in self.rejections:
            if rejection.by == self.by:
                text: str | None = await rejection.explanation(timeout_seconds)
                return text
        return None


class VoteCounted(CallFailed):
    """D-103: what we approved has our vote now, and was not carried out yet; `missing` votes are needed."""

    def __init__(self, message: str, *, missing: int, needed: int) -> None:
        super().__init__(message)
        self.missing = missing
        self.needed = needed


class Withdrawn(CallFailed):
    """MEW 3.3.1: the proposal was taken back before anybody fulfilled it."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the proposal was withdrawn: {reason}")
        self.reason = reason


class Expired(CallFailed):
    """MEW 10.2: nobody decided on the proposal while it was valid."""


class FulfilmentCancelled(CallOutcomeUnknown):
    """Whoever fulfilled the proposal cancelled the request; the proposal is spent (D-28)."""

    def __init__(self, by: str) -> None:
        super().__init__(
            f"{by} approved the proposal and then cancelled the call: the outcome is unknown, so check "
            "before proposing it anew"
        )
        self.by = by


class UnsupportedByRecipient(CallFailed):
    """D-56: accepted and delivered, but the addressee speaks a dialect without it: expect no answer."""


# XProtocol: what `moot.xprotocol.identity` and `moot.xprotocol` raise.
#
#    MootError
#    ├── UsageError
#    │   └── KeyFileError                the file of keys is not as it must be
#    ├── InvalidKey                  a text that is no key, or a key that nobody should trust
#    ├── UnverifiedEvent             nobody is known to have sent this: dropped without an answer
#    │   └── MalformedEvent              not an xp1 event at all
#    └── EventFault                  the sender is known and gets an xp.error
#        ├── AuthorizationInsufficient   AUTHORIZATION_INSUFFICIENT
#        │   └── InvalidStatement            a delegation or grant that does not hold
#        ├── SchemaViolation             SCHEMA_VIOLATION
#        ├── EventExpired                EXPIRED
#        ├── SenderRevoked               REVOKED
#        ├── KindNotFound                NOT_FOUND
#        ├── SenderTooFast               RATE_LIMITED
#        └── EndpointUnavailable         ENDPOINT_UNAVAILABLE
#
# None of them is a `Refused`: those are the words of a space, and no event is ever answered with one.


class KeyFileError(UsageError):
    """The key file is missing, damaged, in the way, or open to others; the text says what to do."""


class InvalidKey(MootError):
    """No canonical `ed25519:` or `x25519:` text, or a point that must not be used."""


class UnverifiedEvent(MootError):
    """An event whose sender is not proven. It is dropped in silence: an answer would serve forgers (D-76).

    `reason` is one word for the log.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class MalformedEvent(UnverifiedEvent):
    """The bytes are no xp1 event."""

    def __init__(self, message: str) -> None:
        super().__init__("malformed", message)


class EventFault(MootError):
    """A verified sender asked for something it does not get; the code goes into an `xp.error`.

    `retry_after` is in seconds, None where waiting changes nothing.
    """

    code: ClassVar[str] = "INTERNAL"

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after = retry_after


class AuthorizationInsufficient(EventFault):
    """XP 5.1: the sender does not hold the capability (D-59)."""

    code = "AUTHORIZATION_INSUFFICIENT"


class InvalidStatement(AuthorizationInsufficient):
    """A delegation, grant or revocation that is broken, too wide, over, or rooted where nobody trusts."""


class SchemaViolation(EventFault):
    """The payload cannot be opened or read, or does not fit the contract."""

    code = "SCHEMA_VIOLATION"


class EventExpired(EventFault):
    """`expires_at` has passed."""

    code = "EXPIRED"


class SenderRevoked(EventFault):
    """The sender's key was revoked for good."""

    code = "REVOKED"


class KindNotFound(EventFault):
    """Nothing here answers to this kind."""

    code = "NOT_FOUND"


class SenderTooFast(EventFault):
    """XP 8.4: more events than this key may send."""

    code = "RATE_LIMITED"


class EndpointUnavailable(EventFault):
    """The event is in order, but cannot be taken right now."""

    code = "ENDPOINT_UNAVAILABLE"
