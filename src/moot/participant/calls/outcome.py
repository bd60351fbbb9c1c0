"""Results of operations: outcomes, progress and rejections."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
import orjson

from moot.errors import HostDoesNotKnow, McpError
from moot.protocol.answer_marks import says_unknown
from moot.protocol.changes import Change
from moot.protocol.operation import Json, Payload
from moot.protocol.proposal_life import RejectionRecord
from moot.protocol.rpc_codes import INTERNAL_ERROR

# JSON-RPC's own, for whatever has no better one.

# Reasons that every member understands (MEW 3.3.3); others are allowed.
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


class Progress(msgspec.Struct, frozen=True):
    """What a host reports on the way (`notifications/progress`); `params` is the whole notification."""

    progress: float
    total: float | None
    message: str | None
    params: Mapping[str, Json]


class Outcome(msgspec.Struct, frozen=True):
    """The result of an operation and how it came about. `result` is the host's answer as it was sent."""

    result: dict[str, Any]
    # `direct`: by our own request. `fulfilled`: somebody made the request that was proposed.
    how: Literal["direct", "fulfilled"]
    # Who sent the request, and who answered it.
    by: str
    host: str
    request_id: str
    proposal_id: str | None = None
    # What was changed in it by whoever approved it: this is the result of the changed call.
    changes: tuple[Change, ...] = ()

    @property
    def is_error(self) -> bool:
        return self.result.get("isError") is True

    @property
    def input_required(self) -> bool:
        """The host needs more input: request again with `inputResponses` and its `requestState`."""
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
        """The text blocks of a tool's answer, joined by line breaks."""
        return text_of(self.result)


def result_of(payload: Payload) -> dict[str, Json]:
    """The result of an answer. One that is no object becomes text content: the tool ran (D-95)."""
    result = payload["result"]
    if isinstance(result, dict):
        return result
    text = result if isinstance(result, str) else orjson.dumps(result).decode()
    return {"content": [{"type": "text", "text": text}]}


def error_of(payload: Payload) -> McpError | None:
    """The error of an answer. A code that is no number is told in its data."""
    error = payload.get("error")
    if error is None:
        return None
    code, data = error.get("code"), error.get("data")
    if code.__class__ is not int:
        code, data = INTERNAL_ERROR, {"code": code} if data is None else {"code": code, "data": data}
    made = HostDoesNotKnow if says_unknown(error) else McpError
    return made(code, error["message"], data)


def text_of(result: Mapping[str, Json]) -> str:
    content = result.get("content")
    blocks = content if isinstance(content, list) else []
    texts = [
        block["text"]
        for block in blocks
        if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)
    ]
    return "\n".join(texts)


class Rejection(RejectionRecord, eq=False):
    """One member's rejection of a proposal, with explanations that may come later (MEW 3.3.3)."""

    _explained: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    async def explanation(self, timeout_seconds: float = 5.0) -> str | None:
        """Wait for the first explanation; None if none comes in time."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._explained.wait()
        except TimeoutError:
            return None
        return self.explanations[0]

    def explain(self, text: str) -> None:
        RejectionRecord.explain(self, text)
        self._explained.set()
