"""A relay that is killed."""

from __future__ import annotations

from tests.xprotocol.relay.crash import run_relay_crashes


def test_nothing_that_was_confirmed_is_lost_when_the_relay_is_killed() -> None:
    """xp1, Relay: OK only after commit. A few rounds; the soak has more."""
    assert "none was lost" in run_relay_crashes(3, seed=6)
