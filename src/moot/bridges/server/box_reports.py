"""What the box of a bridged server let through and refused: in the log, in results, and in the space."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from moot.box.boxed_child import Box
from moot.box.egress_proxy import NOT_LISTED, EgressFact
from moot.box.host_rules import is_address, read_rules
from moot.bridges.server.box_widenings import ONCE_SECONDS, BoxWidenings
from moot.errors import McpError, MootError, UsageError
from moot.mcp.eras import JsonObject
from moot.participant import IncomingRequest, JoinedSpace
from moot.protocol.hidden_text import show_hidden
from moot.protocol.kinds import WIDEN_BOX
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INVALID_PARAMS

log = logging.getLogger(__name__)

# In `_meta` of a result: the hosts that the server connected to, or wanted to, while the call ran.
CONNECTIONS_KEY: Final = "moot/connections"
# Connections that one result names; a crawler makes thousands.
MAX_CONNECTIONS: Final = 20
# Refusals that the space is told of in one run: the first ones say what is wrong.
MAX_TOLD: Final = 10
_PATH = re.compile(r"/[\w.@+~-]+(?:/[\w.@+~ -]*[\w.@+~-])+", re.ASCII)
_PATH_CHARS: Final = 200
# How Node.js and getaddrinfo of C name a host that they did not find.
_NAME_LOOKUP = re.compile(
    r"(?:getaddrinfo |queryA+ )?(?:EAI_AGAIN|ENOTFOUND|Could not resolve host:) ?"
    r"([a-z0-9](?:[a-z0-9-]{0,62}\.)+[a-z]{2,63})\b",
    re.IGNORECASE | re.ASCII,
)
_READ_ONLY = re.compile(r"EROFS|Read-only file system|Errno 30", re.IGNORECASE)


class BoxReports:
    """Facts about one box, from its start on."""

    def __init__(self, box: Box, label: str) -> None:
        self._box = box
        self._label = label
        self.widenings = BoxWidenings(box)
        self._facts: deque[EgressFact] = deque(maxlen=1_000)
        self.count = 0
        self._told: set[str] = set()
        # Hosts that programs looked up by themselves: they know no proxy.
        self._looked_up: set[str] = set()
        # In words, and what would allow it; None: nothing that people could from here.
        self._untold: asyncio.Queue[tuple[str, JsonObject | None]] = asyncio.Queue(MAX_TOLD)

    def add(self, fact: EgressFact) -> None:
        """One attempt to connect."""
        self._facts.append(fact)
        self.count += 1
        facts = {"server": self._label, "host": show_hidden(fact.host), "port": fact.port}
        if fact.refusal is None:
            log.info("a boxed server connected", extra=facts)
            return
        log.warning("a box refused a connection", extra=facts | {"reason": fact.refusal})
        wanted = show_hidden(str(fact))
        text = f"This server wanted to connect to {wanted}. Its box refused: {fact.refusal}. "
        if fact.refusal == NOT_LISTED and not is_address(fact.host):
            self._tell(text, {"network": f"{fact.host}:{fact.port}"})
        else:
            self._tell(text + "Whoever runs it can add the address under box: network.", None)

    def add_error(self, text: str) -> None:
        """What the server said when something failed: perhaps what it did not find, or could not change."""
        if found := _NAME_LOOKUP.search(text):
            # It knows no proxy, so the name is all that there is to see; the port is that of HTTPS.
            host = found[1].lower()
            is_known = read_rules(self.widenings.hosts()).allows(host, 443)
            if not is_known and not is_address(host) and len(self._looked_up) < MAX_TOLD:
                self._looked_up.add(f"{host}:443")
                self._tell(
                    f"This server failed to look up {host}, which its box does not know. ",
                    {"network": f"{host}:443"},
                )
                return
        box = replace(self._box, config=self.widenings.present)
        for found in _PATH.finditer(text):
            # Whether it is there outside is not looked at: the box keeps that, too.
            path = found[0][:_PATH_CHARS]
            read_only = box.read_only(path) if _READ_ONLY.search(text) else None
            if read_only is not None:
                self._tell(
                    f"This server failed to change {path}, which its box only lets it read. ",
                    {"write": read_only},
                )
                return
            if not box.shows(path):
                log.warning("a boxed server named a path outside of its box", extra={"server": self._label})
                hidden = any(Path(path).is_relative_to(each) for each in self._box.hidden)
                self._tell(
                    f"This server failed and named {path}, which is outside of its box. ",
                    None if hidden else {"read": path},
                )
                return

    def with_connections(self, result: JsonObject, since: int) -> JsonObject:
        """The result, with what was connected to since then."""
        if result.get("isError") is True:
            content = result.get("content")
            for part in content if isinstance(content, list) else []:
                if isinstance(part, dict) and isinstance(part.get("text"), str):
                    self.add_error(part["text"][:4_096])
        shown = self._connections(since)
        if not shown:
            return result
        meta = result.get("_meta")
        return result | {"_meta": {**(meta if isinstance(meta, dict) else {}), CONNECTIONS_KEY: shown}}

    def with_connections_of_error(self, fault: McpError, since: int) -> McpError:
        """The error of a call, with what was connected to all the same."""
        shown = self._connections(since)
        if not shown or not isinstance(fault.data, dict | None):
            return fault
        return McpError(fault.code, fault.message, {**(fault.data or {}), CONNECTIONS_KEY: shown})

    def _connections(self, since: int) -> list[Json]:
        new = self.count - since
        recent = list(dict.fromkeys(list(self._facts)[-new:])) if new else []
        return [
            {"host": show_hidden(each.host), "port": each.port, "refused": each.refusal is not None}
            for each in recent[:MAX_CONNECTIONS]
        ]

    def widen(self, request: IncomingRequest, space: JoinedSpace, restart: Callable[[], None]) -> JsonObject:
        """The result of a call that widens the box (decision 0271); raises McpError."""
        sender = space.roster.get(request.sender)
        if sender is None or not sender.may("capability/grant"):
            text = "a box is widened by members who may give rights (capability/grant), and by nobody else"
            raise McpError(INVALID_PARAMS, text)
        given = request.params.get("arguments")
        try:
            kind, value, text = self.widenings.widen(given if isinstance(given, dict) else {})
        except UsageError as fault:
            raise McpError(INVALID_PARAMS, str(fault)) from None
        # When that ends, it may be asked again.
        self._told.discard(str({kind: value}))
        log.warning("a box was changed", extra={"server": self._label, "by": sender.name, "what": text})
        if kind != "network" or value in self._looked_up:
            # Paths, and addresses of names, are given to a box when it starts.
            restart()
            text += "; the server is started again"
        return {"content": [{"type": "text", "text": f"{text}."}]}

    async def run(self, space: JoinedSpace) -> None:
        """Tell the space what was refused first, and propose what would allow it, until cancelled."""
        while True:
            text, wider = await self._untold.get()
            try:
                if wider is not None:
                    text += await _propose(space, wider)
                if space.may("chat", {"text": text}):
                    await space.send("chat", {"text": text})
            except MootError as fault:
                log.debug("refusal not reported in the space", extra={"reason": type(fault).__name__})

    def _tell(self, text: str, wider: JsonObject | None) -> None:
        key = text if wider is None else str(wider)
        if key not in self._told and len(self._told) < MAX_TOLD:
            self._told.add(key)
            self._untold.put_nowait((text, wider))


async def _propose(space: JoinedSpace, wider: JsonObject) -> str:
    """Propose it, if the bridge may; and in words what people can do."""
    params: JsonObject = {"name": WIDEN_BOX, "arguments": wider | {"keep": "once"}}
    (kind,) = wider
    if not space.may("mcp/proposal", {"method": "tools/call", "params": params}, [space.me]):
        return f"If it should, whoever runs it can add it under box: {kind}."
    proposal = await space.propose(space.me, "tools/call", params, wait_for_others=True)
    once = f"for {ONCE_SECONDS / 60:.0f} minutes" if kind == "network" else "until it is started again"
    return (
        f"Allow it? `moot approve {proposal.id[:8]}` does {once}; with `--set keep=always`, for good; "
        "`moot reject` leaves it as it is."
    )
