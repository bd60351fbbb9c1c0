"""What an agent is told when it starts, and every bound of it."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from moot.offers.search_settings import SearchSettings

# Whose chats make the agent speak: those that name it, or everybody's.
Answers = Literal["named", "all"]

DEFAULT_INSTRUCTIONS: Final = (
    "You are a member of a shared workspace of people, agents and tools. Everybody there sees what you say "
    "and do. Use tools where they help. A tool that you may not call yourself is proposed to the others, and "
    "somebody decides: if it is rejected, respect the reason and do not try the same thing again. "
    "Say plainly what you did and what you did not."
)


class AgentLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers that keep an agent from running away."""

    # Answers of the model within one turn: a dozen tool calls solve most tasks, more is usually a loop.
    steps: int = 16
    # Chats that wait for their turn; the next one is told to come later.
    queued_turns: int = 32
    # Turns that one member may cause within a minute: two agents must not talk each other into the ground.
    # 0: any number.
    turns_per_minute: int = 20
    # What fits into the model's mind; `compact_at` of it sets off a compaction (MEW 3.9.5).
    context_tokens: int = 32_000
    compact_at: float = 0.9
    tell_at: float = 0.8
    # Characters of one tool's answer that the model is shown; the space has all of it.
    result_chars: int = 20_000
    # Tools that the model is shown at once: most endpoints stop at 128.
    tools: int = 100
    # A model that says nothing for so long is gone; the whole answer may take longer.
    silence_seconds: float = 120.0
    answer_seconds: float = 600.0
    # How often a busy or failing endpoint is asked again, and how long it may make us wait.
    retries: int = 4
    retry_seconds: float = 30.0
    # How long somebody may think about a proposal before the agent goes on without.
    proposal_seconds: float = 3_600.0
    # Thoughts longer than this go out as a stream, too (MEW 3.10.1).
    stream_chars: int = 2_000


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """An OpenAI-compatible endpoint. The key comes from the environment and shows nowhere."""

    base_url: str
    model: str
    api_key: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    # False for endpoints that cannot stream: then an answer comes at once, or not at all.
    stream: bool = True

    def __repr__(self) -> str:
        return f"ModelSettings(base_url={self.base_url!r}, model={self.model!r})"


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent behaves."""

    instructions: str = DEFAULT_INSTRUCTIONS
    answers: Answers = "named"
    # Whether thoughts are shown as reasoning/*; the space sees requests and proposals in any case.
    show_reasoning: bool = True
    limits: AgentLimits = AgentLimits()
    # How `find_tools` searches.
    search: SearchSettings = SearchSettings()
