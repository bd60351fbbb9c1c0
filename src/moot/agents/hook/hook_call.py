"""What a coding agent tells its hook about a call, and how the hook answers, in the form of each agent.

An agent goes on when its hook fails in most ways. Two things stop it for certain: exit status 2 with a reason
on stderr, and a decision on stdout with status 0. So everything that is no approval ends with status 2.

After a call the agent tells its hook again. The line for the space has the call and whether it failed, as the
agent reports it, and nothing of what came out: a file that was read, or the output of a command, stays with
the agent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from moot.errors import MalformedEnvelope, UsageError
from moot.protocol import strict_json
from moot.protocol.hidden_text import show_hidden
from moot.protocol.operation import Json

AgentName = Literal["claude-code", "codex", "gemini"]

# Agent → the event at which it asks.
EVENTS: Final[dict[AgentName, str]] = {
    "claude-code": "PreToolUse",
    "codex": "PermissionRequest",
    "gemini": "BeforeTool",
}
# Agent → the events at which it tells that a call is over.
AFTER_EVENTS: Final[dict[AgentName, tuple[str, ...]]] = {
    "claude-code": ("PostToolUse", "PostToolUseFailure"),
    "codex": ("PostToolUse",),
    "gemini": ("AfterTool",),
}
# What a call may be at most: more cannot be proposed, and nobody could read it.
MAX_CALL_BYTES: Final = 512 << 10
# What a report shows of the call: the proposal has all of it.
MAX_REPORT_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class HookCall:
    """One call that an agent is about to make."""

    tool: str
    input: dict[str, Json]
    folder: str

    @property
    def params(self) -> dict[str, Json]:
        """The params of the proposal: exactly this call, and where; no ids, so that a retry is the same."""
        return {"name": self.tool, "arguments": {"input": self.input, "folder": self.folder}}


def parse_event(data: bytes) -> dict[str, Json]:
    """What the agent told its hook; raises UsageError if it is no object."""
    try:
        event: Json = strict_json.parse(data)
    except MalformedEnvelope as fault:
        raise UsageError(f"the hook got no JSON: {fault}") from None
    return event if isinstance(event, dict) else {}


def read_call(agent: AgentName, data: bytes) -> HookCall:
    """The call that an agent asks about; raises UsageError for everything else."""
    if len(data) > MAX_CALL_BYTES:
        raise UsageError(f"the call has more than {MAX_CALL_BYTES} bytes; do it in smaller parts")
    event = parse_event(data)
    name = event.get("hook_event_name")
    if name != EVENTS[agent]:
        raise UsageError(f"this hook is for {EVENTS[agent]} of {agent}, and was called for {name!r}")
    tool, given, folder = event.get("tool_name"), event.get("tool_input"), event.get("cwd")
    if not isinstance(tool, str) or not tool or not isinstance(given, dict) or not isinstance(folder, str):
        raise UsageError("the agent did not tell tool_name, tool_input and cwd; the call cannot be shown")
    return HookCall(tool, given, folder)


def allow_answer(agent: AgentName, by: str) -> str:
    """What the hook prints so that the agent makes this one call."""
    reason = f"approved by {by}"
    answer: Json
    match agent:
        case "claude-code":
            answer = {
                "hookSpecificOutput": {
                    "hookEventName": "PreToolUse",
                    "permissionDecision": "allow",
                    "permissionDecisionReason": reason,
                }
            }
        case "codex":
            answer = {
                "hookSpecificOutput": {
                    "hookEventName": "PermissionRequest",
                    "decision": {"behavior": "allow"},
                }
            }
        case "gemini":
            answer = {"decision": "allow", "reason": reason}
    return strict_json.encode(answer).decode()


def read_report(agent: AgentName, data: bytes) -> str | None:
    """The line for a call that is over; None if the event is another one. Raises UsageError for no JSON."""
    event = parse_event(data)
    name = event.get("hook_event_name")
    if name not in AFTER_EVENTS[agent]:
        return None
    tool, response = str(event.get("tool_name")), event.get("tool_response")
    # Not "done": some agents report a command that failed like any other.
    how = "failed" if name == "PostToolUseFailure" or _has_error(response) else "has ended"
    call = show_hidden(f"{tool} {strict_json.encode(event.get('tool_input')).decode()}")
    shown = call if len(call) <= MAX_REPORT_CHARS else f"{call[:MAX_REPORT_CHARS]}…"
    return f"Reported by the agent: {how}: {shown}"


def _has_error(response: Json) -> bool:
    if not isinstance(response, dict):
        return False
    return bool(response.get("error") or response.get("is_error") or response.get("isError"))
