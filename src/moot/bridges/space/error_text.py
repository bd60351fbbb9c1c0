"""What a person or a model reads when a call failed: what happened, and what to do next."""

from __future__ import annotations

from moot.errors import (
    BadAnswer,
    CallOutcomeUnknown,
    CapabilityViolation,
    ClosedWhileWaiting,
    ConnectionClosed,
    ConnectionLost,
    Expired,
    HostDoesNotKnow,
    McpError,
    MemberLeft,
    MootError,
    NotAllowed,
    OutboxFull,
    Paused,
    RateLimited,
    Refused,
    Rejected,
    ResultMissed,
    TimedOut,
    Unreachable,
    Withdrawn,
)
from moot.mcp.downstream.backend import text_result
from moot.mcp.downstream.rpc import NOT_ALLOWED, NOT_DONE
from moot.mcp.eras import JsonObject


def describe_fault(fault: MootError, what: str, host: str) -> str:
    """One fault as text. `what` is the call that failed, `host` the member that was to run it."""
    match fault:
        case Rejected():
            why = "; ".join(
                f"{no.by}: {no.reason}" + "".join(f" ({text})" for text in no.explanations)
                for no in fault.rejections
            )
            return (
                f"Rejected, so {what} was not done. {why}. Do not repeat it unchanged: ask in moot_chat what "
                "would be acceptable, or propose something else."
            )
        case Withdrawn():
            return (
                f"Withdrawn before anybody decided, so {what} was not done. Call again to propose it again."
            )
        case Expired():
            return f"The proposal expired: nobody decided in time, so {what} was not done. Call it again."
        case NotAllowed():
            return (
                f"You may neither request nor propose {what}. Ask somebody who may grant it, for example in "
                f"moot_chat: {' or '.join(fault.missing)} to {host}."
            )
        case Paused():
            return f"You are {fault}. Nothing was sent; wait until you are resumed, then call again."
        case ClosedWhileWaiting():
            return (
                f"OUTCOME UNKNOWN: you are not in the space any more ({fault.reason or fault.code}), and no "
                f"answer had come. {what} of {host} may have been carried out. Do not call it again: look at "
                "the result first."
            )
        case CallOutcomeUnknown():
            return (
                f"OUTCOME UNKNOWN: {fault}. {what} of {host} may have been carried out. Do not call it "
                "again: look at the result with another tool first, or ask in moot_chat."
            )
        case MemberLeft():
            return f"{host} is not in the space, so {what} got no answer. moot_participants lists who is."
        case Unreachable():
            return (
                f"The gateway cannot be reached, so {what} was not sent. The connection comes back by "
                "itself: call again soon."
            )
        case ResultMissed():
            result = "was done" if fault.outcome == "done" else "was carried out and failed"
            return (
                f"Approved, and {what} of {host} {result} while nobody here was connected; its result was "
                "not kept. Do not call it again for this: look at what it did with another tool."
            )
        case ConnectionLost():
            return (
                f"The connection to the gateway was lost while waiting for {what}; whether it was done is "
                "not known. Check before you call it again; the connection comes back by itself."
            )
        case ConnectionClosed():
            return (
                f"You are not in the space any more ({fault.reason or fault.code}), so {what} was not sent."
            )
        case TimedOut():
            return (
                f"{host} did not answer in time ({fault}). It may still be running: check before repeating."
            )
        case BadAnswer():
            return f"{host} gave a response that is not valid MCP ({fault.fault}). Tell its operator."
        case OutboxFull():
            return f"Too many calls are running ({fault}). Wait for some calls to finish, then call again."
        case RateLimited():
            return f"Too fast: {fault.message}. Wait a moment, then call again."
        case CapabilityViolation():
            return (
                f"The gateway refused {what}: {fault.message}. Ask for the right, or propose something else."
            )
        case Refused():
            return f"The gateway refused {what} ({fault.code}): {fault.message}"
    return f"{what} failed: {fault}"


def host_error(fault: McpError, what: str, host: str) -> McpError:
    """An error of the host, in other words only if it does not know what came of the call."""
    if isinstance(fault, HostDoesNotKnow):
        return McpError(fault.code, describe_fault(fault, what, host), fault.data)
    return fault


def failure_result(fault: MootError, *, method: str, what: str, host: str) -> JsonObject:
    """The result of a call that failed: for a tool a result that says why, for other methods an McpError.

    An error of the host itself is raised unchanged, with its code, message and data.
    """
    if isinstance(fault, McpError):
        raise host_error(fault, what, host)
    text = describe_fault(fault, what, host)
    if method == "tools/call":
        is_done = isinstance(fault, ResultMissed) and fault.outcome == "done"
        return text_result(text, is_error=not is_done)
    code = NOT_ALLOWED if isinstance(fault, NotAllowed | CapabilityViolation | Rejected) else NOT_DONE
    raise McpError(code, text, {"reason": getattr(fault, "code", type(fault).__name__)}) from fault
