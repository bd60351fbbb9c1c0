"""A space for tests of origins: a person, an agent, a host of tools, and what they say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from moot.origins.origin_call import ArgumentOrigin, OriginCall
from moot.origins.origin_memory import OriginMemory
from moot.origins.origin_verdict import OriginVerdict, verdict_on
from moot.origins.source_index import MAX_INDEX_CHARS
from moot.origins.tool_traits import UNKNOWN_TOOL, ToolTraits
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json

ANA, AGENT, OTHER_AGENT, HOST = "ana", "assistant", "helper", "tools"
NOON = 1_715_774_400.0  # Wednesday, 15 May 2024, 12:00 UTC
TRAITS = {
    "read_mail": ToolTraits(effect="reads", outside=False),
    "find_files": ToolTraits(effect="reads", outside=False, returns="records"),
    "find_contact": ToolTraits(effect="reads", outside=False, returns="trusted", private=False),
    "my_data": ToolTraits(effect="reads", outside=False, returns="trusted"),
    "fetch_page": ToolTraits(effect="reads", private=False),
    "save_note": ToolTraits(outside=False),
    "delete_file": ToolTraits(effect="destroys"),
}


class TalkingSpace:
    """Envelopes in their order, one second apart, as a space accepts them."""

    def __init__(self, *, known: Sequence[str] = (), max_chars: int = MAX_INDEX_CHARS) -> None:
        self.memory = OriginMemory(lambda _host, tool: TRAITS.get(tool, UNKNOWN_TOOL), known, max_chars)
        self.count = 0

    @property
    def now(self) -> float:
        return NOON + self.count

    def send(
        self, kind: str, sender: str, to: Sequence[str], payload: Json, about: Sequence[str] = ()
    ) -> str:
        self.count += 1
        raw = json.dumps(payload).encode("utf-8", "surrogatepass")
        envelope = Envelope("mew", kind, f"e{self.count}", "", sender, to, about, None, payload, raw)
        self.memory.see(envelope, person=sender == ANA, at=self.now)
        return envelope.id

    def ana_says(self, text: str) -> str:
        return self.send("chat", ANA, [AGENT], {"text": text})

    def result(
        self, tool: str, value: Json, *, arguments: Mapping[str, Json] | None = None, error: bool = False
    ) -> str:
        """The agent calls a tool, which returns a text or something structured; the id of the answer."""
        params = {"name": tool, "arguments": arguments or {}}
        request = self.send("mcp/request", AGENT, [HOST], {"method": "tools/call", "params": params})
        text = value if isinstance(value, str) else json.dumps(value)
        answer: dict[str, Json] = {"content": [{"type": "text", "text": text}], "isError": error}
        if not isinstance(value, str):
            answer["structuredContent"] = value if isinstance(value, dict) else {"result": value}
        return self.send("mcp/response", HOST, [AGENT], {"result": answer}, [request])

    def verdict(
        self, tool: str, choices: Sequence[str] = (), agent: str = AGENT, **arguments: Json
    ) -> OriginVerdict:
        """Of a call whose definition lists all its arguments, each with these options."""
        schema = {"properties": {name: {"enum": list(choices)} for name in arguments}}
        call = OriginCall(agent, tool, arguments, TRAITS.get(tool, UNKNOWN_TOOL), schema)
        return verdict_on(self.memory, call, self.now)

    def origin(self, tool: str = "send_mail", **arguments: Json) -> ArgumentOrigin:
        """Where the one argument came from."""
        (found,) = self.verdict(tool, **arguments).arguments
        return found
