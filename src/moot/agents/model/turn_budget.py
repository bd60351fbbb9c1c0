"""What one turn may still do: a question leads to a bounded number of calls, proposals and tokens.

The bound is in the agent and not in its instructions, because models do not keep to those: one that was
rejected proposes a variant, and the next, as long as somebody goes on answering.
"""

from __future__ import annotations

from moot.agents.model.agent_settings import AgentLimits
from moot.agents.model.model_reply import ModelReply, ToolCall


class TurnBudget:
    """Counts within one turn."""

    def __init__(self, limits: AgentLimits) -> None:
        self._limits = limits
        self._tool_calls = 0
        self._tokens = 0
        # Why each proposal came to nothing, in order.
        self._rejections: list[str] = []
        self._rejected_calls: set[tuple[str, str]] = set()

    def refusal_of(self, call: ToolCall) -> str | None:
        """Why a call is not made; None if it may be."""
        if (call.name, call.arguments) in self._rejected_calls:
            return "Not proposed again: exactly this was rejected. Accept that, or ask what else would help."
        if (ended := self.ended()) is not None:
            return f"Not called: {ended}. Answer now, and say what was done and what was not."
        self._tool_calls += 1
        return None

    def record_rejection(self, call: ToolCall, why: str) -> None:
        self._rejections.append(why)
        self._rejected_calls.add((call.name, call.arguments))

    def record_reply(self, reply: ModelReply) -> None:
        self._tokens += reply.prompt_tokens + reply.completion_tokens

    def ended(self) -> str | None:
        """Why nothing more is called in this turn; None while something may be."""
        limits = self._limits
        if len(self._rejections) >= limits.max_rejections:
            return f"{len(self._rejections)} proposals came to nothing ({'; '.join(self._rejections)[:300]})"
        if self._tool_calls >= limits.max_tool_calls:
            return f"{self._tool_calls} calls were made, the limit of one turn (tool_calls)"
        if limits.turn_tokens and self._tokens >= limits.turn_tokens:
            return f"{self._tokens} tokens were used, the limit of one turn is {limits.turn_tokens}"
        return None
