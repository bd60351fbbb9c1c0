"""What a coding agent tells its hook after a call, in a line for the space.

The line has the call and whether it failed, as the agent reports it, and nothing of what came out: a file
that was read, or the output of a command, stays with the agent.
"""

from __future__ import annotations

from typing import Final

from moot.bridge.agent_hook.hook_call import AgentName, parse_event
from moot.protocol import strict_json
from moot.protocol.hidden_text import show_hidden
from moot.protocol.operation import Json

# Agent → the events at which it tells that a call is over.
AFTER_EVENTS: Final[dict[AgentName, tuple[str, ...]]] = {
    "claude-code": ("PostToolUse", "PostToolUseFailure"),
    "codex": ("PostToolUse",),
    "gemini": ("AfterTool",),
}
# What a report shows of the call: the proposal has all of it.
MAX_REPORT_CHARS: Final = 500


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
