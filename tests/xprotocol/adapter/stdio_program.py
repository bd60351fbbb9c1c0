"""Shows one far endpoint over its streams: `python -m tests.xprotocol.adapter.stdio_program RELAY KEY`.

Small on purpose: `Outward` and `Listener` as a program composes them, and nothing else of the adapter.
"""

from __future__ import annotations

import logging
import sys

import uvloop

from moot.xprotocol.adapter.config.adapter_settings import McpServerSettings
from moot.xprotocol.adapter.config.source_settings import XProtocolSource
from moot.xprotocol.adapter.outbound.mcp_listener import McpListener
from tests.xprotocol.adapter.outbound_environment import open_outbound


async def main(relay: str, key: str) -> None:
    # What a careless library does: none of it may reach the client's lines.
    print("this goes to stderr")
    one = XProtocolSource(name="weather", key=key, relay=relay, mcp_tool_prefix="weather_")
    async with (
        open_outbound(relay, one) as outward,
        McpListener(McpServerSettings(), outward.backend) as listener,
    ):
        print("and so does this")
        logging.getLogger("moot").warning("up")
        await listener.wait_ended()


if __name__ == "__main__":
    sys.stdout = sys.stderr
    uvloop.run(main(sys.argv[1], sys.argv[2]))
