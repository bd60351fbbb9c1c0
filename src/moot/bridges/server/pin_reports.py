"""Telling that tools have changed: in the log, and in the space (D-87)."""

from __future__ import annotations

import logging

from moot.errors import MootError
from moot.mcp.tool_pins import PinChange, Pins
from moot.participant import JoinedSpace

log = logging.getLogger(__name__)


async def report_changes(changes: tuple[PinChange, ...], pins: Pins, server: str, space: JoinedSpace) -> None:
    """In the space only if we may chat."""
    for change in changes:
        log.warning("a tool changed", extra={"server": server, "tool": change.tool, "fields": change.lines()})
        withheld = pins.withholds(change.tool)
        end = "withheld until the operator of this bridge accepts it" if withheld else "still offered"
        # Only which fields differ: models read the chat, and the new text may be written for them.
        fields = ", ".join(change.field_names())
        text = f"The tool {change.tool!r} has changed since it was first seen ({fields}); it is {end}."
        try:
            if space.may("chat", {"text": text}):
                await space.send("chat", {"text": text})
        except MootError as fault:
            log.debug("change not reported in the space", extra={"reason": type(fault).__name__})
