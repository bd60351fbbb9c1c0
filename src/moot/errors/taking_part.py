"""Taking part: what `moot.participant` and `moot.net.websocket_client` raise.

MootError
├── Unreachable             nobody answers at that address
├── ConnectionClosed        it ended for good; code and reason say how
│   └── NotAdmitted         it never began: token, space or name are not right
├── ConnectionLost          it went away for now; what was waited for may have been missed
│   └── ResultMissed            it was carried out, and its result passed while we were away
├── NotAllowed              own rights do not allow this (said before anything is sent)
├── Paused                  somebody paused us (MEW 3.9.1)
├── OutboxFull              more was sent than the gateway takes at once
├── TimedOut                nobody answered in time
├── ReasoningCancelled      somebody asked us to stop thinking (MEW 3.5.5)
├── CallFailed              an operation brought no result
│   ├── McpError                the host answered a JSON-RPC error; hosts raise it too
│   ├── ToolFailed              the tool answered isError
│   ├── BadAnswer               the host answered something that is no MCP answer
│   ├── MemberLeft              the host is not here, and nothing was sent to it
│   ├── CallOutcomeUnknown      whether it was carried out is not known: look before doing it again
│   │   ├── HostLeft                the host left and has not answered; also a MemberLeft
│   │   ├── HostDoesNotKnow         the host answered that it cannot tell; also an McpError
│   │   ├── ClosedWhileWaiting      we are out before the answer came; also a ConnectionClosed
│   │   ├── AnswerTimedOut          no answer came in time; also a TimedOut
│   │   └── FulfilmentCancelled     whoever fulfilled the proposal called it off
│   ├── Interrupted             a restart ended it (MEW 3.9.9)
│   ├── Rejected                somebody declined the proposal (MEW 3.3.2)
│   ├── VoteCounted             our approval was a vote, and it was not the last one (D-103)
│   ├── Withdrawn               the proposal was taken back (MEW 3.3.1)
│   ├── Expired                 the proposal is too old (MEW 10.2)
│   └── UnsupportedByRecipient  a control for somebody whose dialect has no such thing
└── Refused                 the gateway said no; a word that we do not know is in `details`
"""

from __future__ import annotations

from typing import Any, Final

from moot.errors.base import MootError

_INVALID_PARAMS: Final = -32602


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
    """More bytes or requests wait than may; wait, or send less."""


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
        # Of all codes, "invalid params" is what tells people least: the message says what was wrong.
        super().__init__(message if code == _INVALID_PARAMS else f"{message} ({code})")
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
