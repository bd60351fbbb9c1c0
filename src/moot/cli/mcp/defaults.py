"""Numbers that several parts of `moot mcp` need."""

from __future__ import annotations

from typing import Final

# How long a call waits for a decision before it answers PENDING.
DECISION_SECONDS: Final = 20.0
# People at the same time; one person with two clients counts twice. Each has a connection to the gateway.
MAX_PEOPLE: Final = 1_000
# Of `ConnectionLimiter`, which is not imported for `--help`; a test compares them.
MAX_CONNECTIONS_PER_ADDRESS: Final = 64
# How long the first request may wait for the gateway; later ones are told that it is waited for.
FIRST_JOIN_SECONDS: Final = 3.0
