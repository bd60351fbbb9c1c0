"""What comes back: results, how they came about, and the small facts that handlers are given."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from moot.protocol.operation import Json

# MEW 3.3.3: reasons that every member understands; others are welcome (MEW 3.3.3 says so).
REJECT_REASONS: Final = (
    "disagree",
    "inappropriate",
    "unsafe",
    "busy",
    "incapable",
    "policy",
    "duplicate",
    "invalid",
    "timeout",
    "resource_limit",
    "no_longer_needed",
    "other",
)


@dataclass(frozen=True, slots=True)
class SentEnvelope:
    """An envelope that left us."""

    id: str
    ts: str
    kind: str
    to: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CloseReason:
    """How a connection ended for good; `code` as in `moot.protocol.close_codes`, 1000 when we left."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class MissedMessages:
    """Something was missed here: `missed` messages because the reader was slow, or any number while away."""

    why: Literal["slow", "reconnected"]
    missed: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a host says it is (`notifications/progress`); `params` is all it said."""

    progress: float
    total: float | None
    message: str | None
    params: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an operation and how it came about. `result` is the host's answer, field by field."""

    result: dict[str, Any]
    # direct: by our own request. fulfilled: somebody made the request that we proposed.
    how: Literal["direct", "fulfilled"]
    # Who sent the request, and who answered it.
    by: str
    host: str
    request_id: str
    proposal_id: str | None = None

    @property
    def is_error(self) -> bool:
        return self.result.get("isError") is True

    @property
    def input_required(self) -> bool:
        """The host wants more first: ask again with `inputResponses` and its `requestState`."""
        return self.result.get("resultType") == "input_required"

    @property
    def content(self) -> list[Any]:
        content = self.result.get("content")
        return content if isinstance(content, list) else []

    @property
    def structured(self) -> Any:
        return self.result.get("structuredContent")

    @property
    def text(self) -> str:
        """The text blocks of a tool's answer, one after the other."""
        return text_of(self.result)


def text_of(result: Mapping[str, Json]) -> str:
    content = result.get("content")
    blocks = content if isinstance(content, list) else []
    texts = [
        block["text"]
        for block in blocks
        if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)
    ]
    return "\n".join(texts)


@dataclass(slots=True, eq=False)
class Rejection:
    """One member's no to a proposal, with what it may add later (MEW 3.3.3)."""

    id: str
    by: str
    reason: str
    explanations: list[str] = field(default_factory=list)
    _explained: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    def explain(self, text: str) -> None:
        """A chat that refers to the rejection has come."""
        self.explanations.append(text)
        self._explained.set()

    async def explanation(self, within: float = 5.0) -> str | None:
        """The first explanation, None if none comes in time (MEW 3.3.3: nobody blocks on one)."""
        try:
            async with asyncio.timeout(within):
                await self._explained.wait()
        except TimeoutError:
            return None
        return self.explanations[0]
