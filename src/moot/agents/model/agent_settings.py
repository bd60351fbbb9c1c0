"""Settings and limits of an agent."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from moot.config.search_settings import SearchSettings
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
    # Calls of tools within one turn, and how many proposals may be rejected or left undecided in it: after a
    # second no, the people who decide have been asked enough.
    max_tool_calls: int = 64
    max_rejections: int = 2
    # Tokens of all requests of one turn; each step sends the whole context again. 0: any number.
    turn_tokens: int = 600_000
    # Tokens, and money at the prices of the model, within 24 hours. 0: any amount.
    tokens_per_day: int = 0
    cost_per_day: float = 0.0
    # Chats that wait for their turn; more are asked to come later.
    max_queued_turns: int = 32
    # Turns that one member may cause within a minute: two agents must not keep each other busy for ever.
    # 0: any number.
    max_turns_per_minute: int = 20
    # Characters of one answer in the chat; the rest is cut off, and the chat says so.
    chat_chars: int = 60_000
    # How far back the agent looks for unanswered questions when it joins or was away. 0: not at all.
    missed_seconds: float = 300.0
    # How long a turn waits for the tools of a server that has just joined and not told them yet.
    list_seconds: float = 10.0
    # The context of the model; it is compacted at `compact_at_share` of it (MEW 3.9.5).
    context_tokens: int = 32_000
    compact_at_share: float = 0.9
    report_at_share: float = 0.8
    # Characters of one tool's answer that the model is shown; the space has all of it.
    result_chars: int = 20_000
    # Tools that the model is shown at once: most endpoints stop at 128.
    max_tools: int = 100
    # How long a model may send nothing, and how long the whole answer may take.
    silence_seconds: float = 120.0
    answer_seconds: float = 600.0
    # Bytes of one answer as it is sent, with all its events.
    answer_bytes: int = 16 << 20
    # How often a busy or failing endpoint is tried again, and the longest wait before that.
    max_retries: int = 4
    retry_seconds: float = 30.0
    # How long the agent waits for a decision on a proposal.
    proposal_seconds: float = 3_600.0
    # How long a turn goes on after the member that asked has left, if it does not come back. 0: to its end.
    asker_away_seconds: float = 60.0
    # Reasoning longer than this is also sent as a stream (MEW 3.10.1).
    stream_chars: int = 2_000


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The endpoint of a model. The key comes from the environment and is never shown."""

    base_url: str
    model: str
    api_key: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    # In any currency, for `cost_per_day`.
    input_price_per_million: float = 0.0
    output_price_per_million: float = 0.0
    # False for endpoints that cannot stream.
    stream: bool = True
    api: Api = "chat"
    # Sent with every request. The values of `secret_headers` are kept out of everything, as the key is.
    headers: dict[str, str] = {}
    secret_headers: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"ModelSettings(base_url={self.base_url!r}, model={self.model!r})"


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent behaves."""

    instructions: str = DEFAULT_INSTRUCTIONS
    answers: Answers = "named"
    # Whether reasoning is shared as reasoning/*; requests and proposals are seen in any case.
    show_reasoning: bool = True
    limits: AgentLimits = AgentLimits()
    # How `find_tools` searches.
    search: SearchSettings = SearchSettings()
