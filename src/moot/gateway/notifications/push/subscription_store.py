"""The subscriptions of all people in one file of the data folder, readable by the gateway's user alone.

Without the file nobody is told by Web Push until they turn it on again; nothing else depends on it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import msgspec

from moot.gateway.notifications.push.subscription import Subscription
from moot.resilience.atomic_file import write_atomically

log = logging.getLogger(__name__)


def read_subscriptions(file: Path) -> list[Subscription]:
    """Those that are kept; none, with a warning, if the file cannot be read."""
    try:
        found = msgspec.json.decode(file.read_bytes(), type=list[Subscription])
        for each in found:
            # Raises ValueError.
            _ = each.browser_keys
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as fault:
        log.warning(
            "push subscriptions cannot be read: people turn notifications on again",
            extra={"file": str(file), "why": type(fault).__name__},
        )
        return []
    return found


def write_subscriptions(file: Path, subscriptions: Iterable[Subscription]) -> None:
    """Replace the file; raises OSError."""
    write_atomically(file, msgspec.json.encode(list(subscriptions)))
