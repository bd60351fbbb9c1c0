"""What the box of a bridged server let through and refused: in the log, in results, and in the space."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from typing import Final

from moot.box.boxed_child import Box
from moot.box.egress_proxy import EgressFact
from moot.errors import MootError
from moot.mcp.eras import JsonObject
from moot.participant import JoinedSpace
from moot.protocol.hidden_text import show_hidden

log = logging.getLogger(__name__)

# In `_meta` of a result: the hosts that the server connected to, or wanted to, while the call ran.
CONNECTIONS_KEY: Final = "moot/connections"
# Connections that one result names; a crawler makes thousands.
MAX_CONNECTIONS: Final = 20
# Refusals that the space is told of in one run: the first ones say what is wrong.
MAX_TOLD: Final = 10
_PATH = re.compile(r"/[\w.@+~-]+(?:/[\w.@+~ -]*[\w.@+~-])+", re.ASCII)
_PATH_CHARS: Final = 200


class BoxReports:
    """Facts about one box, from its start on."""

    def __init__(self, box: Box, label: str) -> None:
        self._box = box
        self._label = label
        self._facts: deque[EgressFact] = deque(maxlen=1_000)
        self.count = 0
        self._told: set[str] = set()
        self._untold: asyncio.Queue[str] = asyncio.Queue(MAX_TOLD)

    def add(self, fact: EgressFact) -> None:
        """One attempt to connect."""
        self._facts.append(fact)
        self.count += 1
        facts = {"server": self._label, "host": show_hidden(fact.host), "port": fact.port}
        if fact.refusal is None:
            log.info("a boxed server connected", extra=facts)
            return
        log.warning("a box refused a connection", extra=facts | {"reason": fact.refusal})
        self._tell(
            f"This server wanted to connect to {show_hidden(str(fact))}. Its box refused: {fact.refusal}. "
            "Whoever runs it can add the host under box: network."
        )

    def add_error(self, text: str) -> None:
        """What the server said when something failed: perhaps that it did not find a path."""
        for found in _PATH.finditer(text):
            # Whether it is there outside is not looked at: the box keeps that, too.
            path = found[0][:_PATH_CHARS]
            if not self._box.shows(path):
                log.warning("a boxed server named a path outside of its box", extra={"server": self._label})
                self._tell(
                    f"This server failed and named {path}, which is outside of its box. If it should see it, "
                    "whoever runs it can add it under box: read or write."
                )
                return

    def with_connections(self, result: JsonObject, since: int) -> JsonObject:
        """The result, with what was connected to since then."""
        if result.get("isError") is True:
            content = result.get("content")
            for part in content if isinstance(content, list) else []:
                if isinstance(part, dict) and isinstance(part.get("text"), str):
                    self.add_error(part["text"][:4_096])
        new = self.count - since
        if not new:
            return result
        recent = list(dict.fromkeys(list(self._facts)[-new:]))
        shown = [
            {"host": show_hidden(each.host), "port": each.port, "refused": each.refusal is not None}
            for each in recent[:MAX_CONNECTIONS]
        ]
        meta = result.get("_meta")
        return result | {"_meta": {**(meta if isinstance(meta, dict) else {}), CONNECTIONS_KEY: shown}}

    async def run(self, space: JoinedSpace) -> None:
        """Tell the space what was refused first, until cancelled."""
        while True:
            text = await self._untold.get()
            try:
                if space.may("chat", {"text": text}):
                    await space.send("chat", {"text": text})
            except MootError as fault:
                log.debug("refusal not reported in the space", extra={"reason": type(fault).__name__})

    def _tell(self, text: str) -> None:
        if text not in self._told and len(self._told) < MAX_TOLD:
            self._told.add(text)
            self._untold.put_nowait(text)
