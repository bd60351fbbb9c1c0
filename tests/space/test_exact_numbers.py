"""A right about a number is about that number, to its last digit, although messages are read with doubles."""

from __future__ import annotations

import pytest

from moot.protocol.exact_numbers import has_rounded_number
from moot.protocol.operation import Json

from .space_driver import SpaceDriver


def bank(*rights: Json) -> SpaceDriver:
    driver = SpaceDriver(participants={"agent": list(rights), "boss": ["*"], "tool": []})
    driver.enter("agent", "boss", "tool")
    return driver


def pays(driver: SpaceDriver, amount: str, id: str = "") -> str | None:
    body = f'{{"method":"tools/call","params":{{"name":"pay","arguments":{{"sum":{amount}}}}}}}'
    driver.received = driver.raw(
        "agent", f'{{"id":"r{id}{amount}","kind":"mcp/request","to":["tool"],"payload":{body}}}'
    )
    return driver.refusal("agent")


def right(amount: Json) -> Json:
    return {"kind": "mcp/request", "payload": {"params": {"name": "pay", "arguments": amount}}}


@pytest.mark.parametrize(
    "form", [right({"$exact": {"sum": 0.1}}), right({"sum": {"$exact": 0.1}}), right({"sum": 0.1})]
)
def test_a_fraction_is_compared_to_its_last_digit(form: Json) -> None:
    driver = bank(form)
    for same in ("0.1", "0.10", "1e-1", "0.10000000000000000000"):
        assert pays(driver, same) is None
    for other in ("0.1000000000000000055", "0.1000000000000000055511151231257827021181583404541015625"):
        assert pays(driver, other) == "capability_violation"
        # What is remembered of the one is not the answer to the other.
        assert pays(driver, "0.1", other) is None


def test_one_is_not_a_little_more_than_one() -> None:
    driver = bank(right({"sum": 1}))
    assert pays(driver, "1") is None
    assert pays(driver, "1.0") is None
    assert pays(driver, "1.00000000000000000001") == "capability_violation"


def test_integers_are_compared_whatever_their_size() -> None:
    driver = bank(right({"$exact": {"sum": 9007199254740993}}))
    assert pays(driver, "9007199254740993") is None
    assert pays(driver, "9007199254740992") == "capability_violation"
    assert pays(driver, "9007199254740993.0") == "capability_violation"


def test_digits_elsewhere_do_not_matter_to_a_right_without_numbers() -> None:
    driver = bank(right({"sum": {"$exact": 0.1}}), {"kind": "chat"})
    raw = '{"id":"c","kind":"chat","payload":{"text":"x","n":0.1000000000000000055}}'
    assert driver.says_raw("agent", raw) is None


def test_a_right_with_a_number_that_would_be_rounded_is_not_granted() -> None:
    driver = bank("mcp/proposal")
    given = (
        '{"kind":"mcp/request","payload":{"params":{"arguments":{"$exact":{"sum":0.1000000000000000055}}}}}'
    )
    payload = f'{{"recipient":"agent","capabilities":[{given}]}}'
    grant = f'{{"id":"g1","kind":"capability/grant","to":["agent"],"payload":{payload}}}'
    assert driver.says_raw("boss", grant) == "invalid_request"
    assert driver.says_raw("boss", grant.replace("0.1000000000000000055", "0.1").replace("g1", "g2")) is None


@pytest.mark.parametrize(
    ("text", "rounded"),
    [
        ('{"a": 0.1}', False),
        ('{"a": 12345678901234567890}', False),
        ('{"a": 1234567890.123456}', False),
        ('{"a": 123456789012345678.5}', True),
        ('{"a": 1e400}', True),
        ('{"a": 1e-400}', True),
        ('{"a": "0.1000000000000000055"}', False),
    ],
)
def test_what_is_rounded(text: str, rounded: bool) -> None:
    assert has_rounded_number(text.encode()) is rounded
