"""What the configuration says about running one space."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from moot.config.gateway_config import JournalConfig
from moot.resilience.steady_clock import SteadyClock


class HostOptions(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    folder: Path  # of its journal
    journal: JournalConfig
    # Whether ordinary messages may take the compiled way, where it is built: not in a cluster.
    fast_path: bool = True
    # The space's time: it never jumps. Conformance vectors make it stand still.
    clock: Callable[[], float] = msgspec.field(default_factory=SteadyClock)
