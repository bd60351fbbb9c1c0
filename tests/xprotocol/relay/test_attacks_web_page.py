"""Web pages that reach for a relay on the reader's own machine (D-84)."""

from __future__ import annotations

from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.xprotocol.relay.raw_client import raw_client, relay_in


async def test_a_page_from_elsewhere_gets_no_connection_to_a_relay_on_loopback(tmp_path: Path) -> None:
    """It could ask every endpoint there what it offers, with a key of its own."""
    async with relay_in(tmp_path) as relay:
        for origin in (
            "https://evil.example",
            "null",
            "http://localhost.evil.example",
            "http://127.0.0.1.evil.example",
            "http://[::1",
            "file://",
        ):
            with pytest.raises(InvalidStatus) as refused:
                async with connect(relay.url, additional_headers={"Origin": origin}):
                    pass
            assert refused.value.response.status_code == 403
        # Programs have none, and a page of this machine may.
        async with (
            raw_client(relay.url),
            raw_client(relay.url, additional_headers={"Origin": "http://localhost:3000"}),
        ):
            pass


async def test_a_relay_with_a_public_address_serves_every_page(tmp_path: Path) -> None:
    """What it tells is public or sealed, and whoever may know its address may ask it."""
    page = {"Origin": "https://app.example"}
    async with (
        relay_in(tmp_path, urls=("wss://relay.example",)) as relay,
        raw_client(relay.url, additional_headers=page),
    ):
        pass
