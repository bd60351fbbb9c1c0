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
    │   │   ├── PasskeyRequired     passkey_required         step 10
    │   │   └── PasskeyInvalid      passkey_invalid          step 10, and signing in
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
    ├── (taking part)           what a member of a space meets; drawn in `taking_part`
    └── (XProtocol)             what adapters and relays meet; drawn in `xprotocol`

Each `Refused` carries the word that the wire uses (`code`), a sentence for a person
(`message`) and what else the answer should say (`details`). Three more words are only ever
told to someone whose act was accepted: `WARNING_CODES`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from moot.errors.base import MootError as MootError
from moot.errors.base import UsageError as UsageError
from moot.errors.taking_part import *  # noqa: F403  # they are part of the tree, and so are the next
from moot.errors.xprotocol import *  # noqa: F403

# In a `system/error` these are no refusal: it was done, and there is something to know about it.
WARNING_CODES: Final = frozenset({"revoke_incomplete", "unsupported_by_recipient", "not_on_disk"})


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


class PasskeyRequired(ApprovalRequired):
    """This decision has to be confirmed with a passkey, and was not."""

    code = "passkey_required"


class PasskeyInvalid(ApprovalRequired):
    """What was confirmed with a passkey is something else, or by somebody else, or was used before."""

    code = "passkey_invalid"


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
