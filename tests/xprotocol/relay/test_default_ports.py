"""A relay and an adapter with nothing but defaults run side by side on one machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from moot.cli import xp
from moot.xprotocol.adapter.config.adapter_settings import DiscoverySettings, McpServerSettings
from moot.xprotocol.relay.relay_settings import DEFAULT_PORT, RelaySettings


def test_relay_and_adapter_share_no_default_port() -> None:
    taken = {McpServerSettings().sse_port, DiscoverySettings().well_known_port}
    assert DEFAULT_PORT not in taken
    parser = argparse.ArgumentParser()
    xp.add_command(parser.add_subparsers(), "xp")
    assert parser.parse_args(["xp", "relay"]).port == RelaySettings(data=Path()).port == DEFAULT_PORT
