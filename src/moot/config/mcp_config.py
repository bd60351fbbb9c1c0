"""The `gateway.mcp` section: the gateway itself serves MCP to the members of a space.

The reference page is written from this file: the comment above a field is what it says there.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

Text = Annotated[str, msgspec.Meta(min_length=1)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class McpEndpointConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`gateway.mcp`: MCP at a path of the gateway, for all members, each by their own token; or a list."""

    # The participant that learns for all of them what the space offers: it may request lists.
    server: Text
    # The space; it can be left out where there is only one.
    space: str = ""
    # Where it is served: /mcp, or something below it.
    path: str = "/mcp"
    # Members at the same time; one with two clients, or with two tokens, counts twice.
    max_people: Positive = 1_000
    # How long a call waits for a decision before it answers PENDING. Clients give up after a minute.
    decision_seconds: Seconds = 20
