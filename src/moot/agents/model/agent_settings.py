"""Settings and limits of an agent."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from moot.config.secrets.secret import Secret
from moot.participant.programs.chat_intake import Answers

# The API that the endpoint speaks.
Api = Literal["chat", "anthropic", "responses"]

DEFAULT_INSTRUCTIONS: Final = (
    "You are a member of a shared workspace of people, agents and tools. Everybody there sees what you say "
    "and do. Use tools where they help. A tool that you may not call yourself is proposed to the others, and "
    "somebody decides: if it is rejected, respect the reason and do not try the same thing again. "
    "Say plainly what you did and what you did not."
)


class AgentLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits that keep an agent from running away."""

    # Answers of the model within one turn: a dozen tool calls solve most tasks, more is usually a loop.
    max_steps: int = 16
    # Tokens, and money at the prices of the model, within 24 hours. 0: any amount.
    tokens_per_day: int = 0
    cost_per_day: float = 0.0
    # The context of the model; it is compacted before it is full (MEW 3.9.5).
    context_tokens: int = 32_000


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The endpoint of a model. The key comes from the environment and is never shown."""

    base_url: str
    model: str
    api_key: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    # Of tokens that it reads, and of those that it writes, in any currency: for `cost_per_day`.
    prices_per_million: tuple[float, float] = (0.0, 0.0)
    # False for endpoints that cannot stream.
    stream: bool = True
    api: Api = "chat"
    # Sent with every request. A `Secret` among them is kept out of everything, as the key is.
    headers: dict[str, str | Secret] = {}

    def __repr__(self) -> str:
        return f"ModelSettings(base_url={self.base_url!r}, model={self.model!r})"


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent behaves."""

    instructions: str = DEFAULT_INSTRUCTIONS
    answers: Answers = "named"
    # Whether reasoning is shared as reasoning/*; requests and proposals are seen in any case.
    show_reasoning: bool = True
    limits: AgentLimits = AgentLimits()
