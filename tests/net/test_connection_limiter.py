"""How connections are counted, by the address that they are for."""

from __future__ import annotations

import pytest

from moot.net import http_protocol
from moot.net.counted_address import plain_address
from moot.net.http_protocol import ConnectionLimiter

GATEWAY, MEMBER = "192.0.2.1", "198.51.100.7"


def test_a_connection_that_moves_keeps_its_place() -> None:
    limiter = ConnectionLimiter(max_per_address=1, max_connections=2)
    assert limiter.acquire(GATEWAY)
    assert limiter.acquire("elsewhere")
    # All is full, and none is one more.
    assert limiter.move(GATEWAY, GATEWAY)
    assert limiter.move(GATEWAY, MEMBER)
    assert (limiter.connections, limiter.refused) == (2, 0)
    assert not limiter.move("elsewhere", MEMBER)
    assert not limiter.acquire(GATEWAY)
    limiter.release("elsewhere")
    # It has left the first address.
    assert limiter.acquire(GATEWAY)
    assert not limiter.acquire("elsewhere")


def test_operators_are_told_once_a_minute_why_connections_are_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whoever comes sees a connection that is reset, and nothing else."""
    limiter = ConnectionLimiter(max_per_address=1)
    assert [limiter.acquire(MEMBER) for _ in range(3)] == [True, False, False]
    (told,) = (record.__dict__ for record in caplog.records)
    assert (told["address"], told["of_address"], told["max_connections_per_address"]) == (MEMBER, 1, 1)


def test_what_a_gateway_has_not_told_yet_counts_apart_and_has_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_protocol, "MAX_UNREAD_RELAYS", 3)
    limiter = ConnectionLimiter(max_per_address=2)
    limiter.is_gateway = lambda address: address == GATEWAY
    unread = limiter.unread(GATEWAY)
    assert [limiter.acquire(unread) for _ in range(4)] == [True, True, True, False]
    assert [limiter.acquire(limiter.unread(MEMBER)) for _ in range(3)] == [True, True, False]
    # Who is at that address and says nothing of a relay has no more than anybody.
    assert [limiter.move(unread, GATEWAY) for _ in range(3)] == [True, True, False]


def test_an_address_of_ipv4_is_known_in_both_forms() -> None:
    assert plain_address("::ffff:192.0.2.1") == plain_address("192.0.2.1") == "192.0.2.1"
    assert plain_address("fe80::1%eth0") == "fe80::1"
