"""The tools of a space for a model: found, named, called or proposed, with results as text.

A model gets the tools of all members under unique names (D-91), and one more, `find_tools`, when there are
more than it can be shown at once. Errors come back as text, too: a model can act on "rejected by alice:
unsafe", and no tool can end a turn. How often it may be rejected is for `TurnBudget` to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import orjson

from moot.agents.model.model_reply import Message, ToolCall
from moot.errors import (
    CallFailed,
    CallOutcomeUnknown,
    ConnectionClosed,
    ConnectionLost,
    MootError,
    NotAllowed,
    Refused,
    Rejected,
    TimedOut,
    ToolFailed,
)
from moot.mcp.eras import OfferKind
from moot.offers.offer_search import OfferSearch
from moot.offers.offer_table import Offer, OfferTable
from moot.participant import JoinedSpace, Outcome, Reasoning
from moot.participant.programs.offer_access import OfferAccess
from moot.participant.programs.offer_discovery import OfferDiscovery
from moot.protocol.operation import Json

# How long a turn waits for the tools of a server that has just joined and not told them yet.
LIST_SECONDS: Final = 10.0
# Characters of one tool's answer that the model is shown; the space has all of it.
RESULT_CHARS: Final = 20_000
# Tools that the model is shown at once: most endpoints stop at 128.
MAX_TOOLS: Final = 100
# How long the agent waits for a decision on a proposal.
PROPOSAL_SECONDS: Final = 3_600.0

FIND: Final = "find_tools"
_FIND_TOOL: Final[Message] = {
    "type": "function",
    "function": {
        "name": FIND,
        "description": "Find tools of this workspace by what they do. What is found can be called then.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "what the tool should do"}},
            "required": ["query"],
        },
    },
}
_FOUND_AT_ONCE: Final = 10
_TOOLS: Final[Sequence[OfferKind]] = ("tools",)
# How long to wait for an explanation of a rejection (MEW 3.3.3: nobody blocks on one).
_EXPLANATION_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a model is told about its call. `rejection`: who did not want it, "" if nobody objected."""

    text: str
    rejection: str = ""


class Toolbox:
    """The tools that one agent may use. `offers` is kept up to date by `discovery`."""

    def __init__(self, space: JoinedSpace, offers: OfferTable, discovery: OfferDiscovery) -> None:
        self._space = space
        self._offers = offers
        self._discovery = discovery
        self._finder = OfferSearch(offers)
        self._access = OfferAccess(space)
        # What a model calls them, where that differs from the name in the space.
        self._renamed: dict[str, str] = {}
        # Found on request, so that they are shown although there are many.
        self._found: dict[str, None] = {}

    async def wait_for_lists(self, asker: str = "") -> list[str]:
        """Wait for the tools of members that have not told them yet; returns who still has not.

        Nothing is waited for from the `asker`: a person has no tools, and perhaps does not answer.
        """
        return await self._discovery.wait_settled(LIST_SECONDS, kinds=_TOOLS, apart_from=asker)

    def definitions(self) -> list[Message]:
        """The tools for the model, as an OpenAI-compatible endpoint wants them."""
        usable = [offer for offer in self._offers.all("tools") if self._is_usable(offer)]
        self._renamed = {name: offer.shown for offer in usable if (name := _model_name(offer)) != offer.shown}
        limit = MAX_TOOLS
        if len(usable) <= limit:
            return [_definition(offer) for offer in usable]
        first = [offer for offer in usable if offer.shown in self._found][-(limit - 1) :]
        rest = [offer for offer in usable if offer.shown not in self._found]
        return [_FIND_TOOL, *map(_definition, (first + rest)[: limit - 1])]

    def offer_of(self, name: str) -> Offer | None:
        return self._offers.find("tools", self._renamed.get(name, name))

    async def use(self, call: ToolCall, reasoning: Reasoning | None) -> ToolResult:
        """Call or propose what the model wants; always returns text, cut to RESULT_CHARS."""
        result = await self._answer_call(call, reasoning)
        limit, text = RESULT_CHARS, result.text
        if len(text) <= limit:
            return result
        cut = f"{text[:limit]}\n[… {len(text) - limit} more characters are not shown]"
        return ToolResult(cut, result.rejection)

    async def _answer_call(self, call: ToolCall, reasoning: Reasoning | None) -> ToolResult:
        try:
            arguments: Json = orjson.loads(call.arguments or b"{}")
        except orjson.JSONDecodeError as fault:
            return ToolResult(f"Not called: the arguments are not JSON ({fault.msg}). Write them again.")
        if not isinstance(arguments, dict):
            return ToolResult("Not called: the arguments must be one JSON object.")
        if call.name == FIND:
            return ToolResult(await self._find(str(arguments.get("query", ""))))
        offer = self.offer_of(call.name)
        if offer is None:
            # Models know names from their instructions and the history, too: perhaps its owner is just back.
            await self.wait_for_lists()
            offer = self.offer_of(call.name)
        if offer is None:
            return ToolResult(f"Not called: no tool is called {call.name!r} here, or its member has left.")
        return await self._perform(offer, arguments, reasoning)

    async def _perform(
        self, offer: Offer, arguments: dict[str, Json], reasoning: Reasoning | None
    ) -> ToolResult:
        space = self._space
        host = next(
            (member.id for member in space.roster.values() if member.name == offer.owner), offer.owner
        )
        params: dict[str, Json] = {"name": offer.key, "arguments": arguments}
        context = reasoning.context if reasoning is not None else None
        may = space.may_request(host, "tools/call", params)
        timeout_seconds = None if may else PROPOSAL_SECONDS
        try:
            outcome = await space.perform(
                host, "tools/call", params, timeout_seconds=timeout_seconds, context=context
            )
        except Rejected as rejection:
            why = f"rejected by {rejection.by}: {rejection.reason}"
            text = f"R{why[1:]}." + await _explanation_of(rejection)
            return ToolResult(text, why)
        except ConnectionClosed:
            # We are out of the space: there is nobody to go on for, whatever came of the call.
            raise
        except (CallOutcomeUnknown, ConnectionLost) as fault:
            return ToolResult(
                f"Outcome unknown: {fault}. It may have been carried out: check before you call it again."
            )
        except TimedOut:
            text = "Nobody decided or answered in time; it was withdrawn."
            return ToolResult(text, "" if may else "nobody decided in time")
        except NotAllowed as fault:
            return ToolResult(f"Not allowed: {fault}")
        except ToolFailed as fault:
            return ToolResult(f"The tool failed: {fault.text}")
        except (CallFailed, Refused) as fault:
            return ToolResult(f"It did not work: {fault}")
        return ToolResult(_describe_outcome(outcome))

    async def _find(self, query: str) -> str:
        try:
            offers = await self._finder.find(
                query, _FOUND_AT_ONCE, lambda offer: offer.kind == "tools" and self._is_usable(offer)
            )
        except MootError as fault:
            return f"Nothing was searched: {fault}"
        if not offers:
            return "No tool fits that."
        for offer in offers:
            self._found.pop(offer.shown, None)
            self._found[offer.shown] = None
        lines = [f"{_model_name(offer)}: {offer.item.get('description', '')}" for offer in offers]
        return "These can be called now:\n" + "\n".join(lines)

    def _is_usable(self, offer: Offer) -> bool:
        """Whether some call of it could be allowed; arguments are looked at when it is made."""
        return offer.owner != self._space.name and self._access.of(offer) != "none"


async def _explanation_of(rejection: Rejected) -> str:
    text = await rejection.explanation(_EXPLANATION_SECONDS)
    return f" {text}" if text else ""


def _describe_outcome(outcome: Outcome) -> str:
    """A result as text for a model."""
    parts = [outcome.text] if outcome.text else []
    if not parts and outcome.structured is not None:
        parts.append(orjson.dumps(outcome.structured).decode())
    parts += [f"[{block.get('type', 'block')}]" for block in outcome.content if _is_no_text(block)]
    text = "\n".join(parts) or "Done; it answered nothing."
    if outcome.input_required:
        text = (
            "It wants more information first, which cannot be given here: "
            + orjson.dumps(outcome.result).decode()
        )
    if outcome.is_error:
        text = f"The tool failed: {text}"
    return text if outcome.how == "direct" else f"(approved by {outcome.by})\n{text}"


def _is_no_text(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") != "text"


def _model_name(offer: Offer) -> str:
    """The name for a model: vendors take letters, digits, `_` and `-`, while MCP allows dots, too."""
    shown = offer.shown
    if "." not in shown:
        return shown
    digest = sha256(shown.encode()).hexdigest()[:6]
    return f"{shown.replace('.', '_')[:57]}_{digest}"


def _definition(offer: Offer) -> Message:
    item = offer.item
    description = str(item.get("description") or item.get("title") or offer.key)
    return {
        "type": "function",
        "function": {
            "name": _model_name(offer),
            "description": f"{description}\n(of {offer.owner})",
            # Some endpoints refuse an object without properties.
            "parameters": {"properties": {}, **item["inputSchema"]},
        },
    }
