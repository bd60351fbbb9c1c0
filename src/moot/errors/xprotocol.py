"""XProtocol: what `moot.xprotocol.identity` and `moot.xprotocol` raise.

   MootError
   ├── UsageError
   │   └── KeyFileError                the file of keys is not as it must be
   ├── InvalidKey                  a text that is no key, or a key that nobody should trust
   ├── UnverifiedEvent             nobody is known to have sent this: dropped without an answer
   │   └── MalformedEvent              not an xp1 event at all
   └── EventFault                  the sender is known and gets an xp.error
       ├── AuthorizationInsufficient   AUTHORIZATION_INSUFFICIENT
       │   └── InvalidStatement            a delegation or grant that does not hold
       ├── SchemaViolation             SCHEMA_VIOLATION
       ├── EventExpired                EXPIRED
       ├── SenderRevoked               REVOKED
       ├── KindNotFound                NOT_FOUND
       ├── SenderTooFast               RATE_LIMITED
       └── EndpointUnavailable         ENDPOINT_UNAVAILABLE

None of them is a `Refused`: those are the words of a space, and no event is ever answered with one.
"""

from __future__ import annotations

from typing import ClassVar

from moot.errors.base import MootError, UsageError


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
