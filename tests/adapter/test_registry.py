"""What is published and how often one may ask: the parts that need no server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moot.adapter.inbound.call_rates import WINDOW_SECONDS, MinuteRates
from moot.adapter.inbound.contract_registry import ContractRegistry, GrammarCache
from moot.errors import UsageError
from moot.xprotocol.publication import ServerOffer
from moot.xprotocol.source_overrides import SourceSettings
from tests.adapter.worlds import OBJECT, named, tool


def source(name: str, namespace: str = "com.acme.desk") -> SourceSettings:
    return SourceSettings(name=name, xprotocol_namespace=namespace)


async def test_a_kind_belongs_to_the_source_that_had_it_first_until_that_gives_it_up() -> None:
    registry = ContractRegistry.open(None)
    offer = ServerOffer(tools=[tool("read_note", schema=named("name"))])
    await registry.take("one", source("one"), offer)
    second = await registry.take("two", source("two"), offer)
    assert [each.reason for each in second.publication.refused] == ["kind_taken"]
    route = registry.route("com.acme.desk.read_note")
    assert route is not None
    assert route.source == "one"
    gone = await registry.drop("one")
    assert gone is not None
    assert gone.gone == ("com.acme.desk.read_note",)
    assert registry.route("com.acme.desk.read_note") is None
    assert len(registry.catalog) == 0
    await registry.take("two", source("two"), offer)
    route = registry.route("com.acme.desk.read_note")
    assert route is not None
    assert route.source == "two"
    assert await registry.drop("never there") is None


async def test_a_version_is_on_disk_before_anybody_can_hear_of_it(tmp_path: Path) -> None:
    registry = ContractRegistry.open(tmp_path)
    await registry.take("one", source("one"), ServerOffer(tools=[tool("read_note", schema=OBJECT)]))
    digest = registry.digest
    (tmp_path / "versions.json").unlink()
    # Nothing can be written in place of a folder.
    (tmp_path / "versions.json").mkdir()
    stricter = ServerOffer(tools=[tool("read_note", schema=named("name"))])
    with pytest.raises(UsageError, match="cannot be written"):
        await registry.take("one", source("one"), stricter)
    assert registry.digest == digest
    (tmp_path / "versions.json").rmdir()
    taken = await registry.take("one", source("one"), stricter)
    assert [change.version for change in taken.changes] == ["2.0.0"]
    again = ContractRegistry.open(tmp_path)
    taken = await again.take("one", source("one"), stricter)
    assert not taken.is_change
    assert again.digest == registry.digest != digest


async def test_many_sources_at_once_lose_no_version(tmp_path: Path) -> None:
    registry = ContractRegistry.open(tmp_path)
    offer = ServerOffer(tools=[tool("read_note", schema=OBJECT)])
    names = [f"s{number}" for number in range(8)]
    await asyncio.gather(*(registry.take(n, source(n, f"com.acme.{n}"), offer) for n in names))
    assert len(registry.catalog) == 8
    assert registry.grammars.compiled == 1
    again = ContractRegistry.open(tmp_path)
    found = [await again.take(n, source(n, f"com.acme.{n}"), offer) for n in names]
    assert not any(taken.is_change for taken in found)


def test_grammars_are_kept_by_schema_and_not_for_ever() -> None:
    grammars = GrammarCache(most=2)
    first = grammars(named("a"))
    assert grammars(named("a")) is first
    grammars(named("b"))
    grammars(named("c"))
    assert grammars.compiled == 3
    grammars(named("a"))
    assert grammars.compiled == 4


def test_a_rate_holds_in_any_minute_and_not_just_on_average() -> None:
    rates = MinuteRates(3, most_keys=10)
    assert [rates.wait("a", now) for now in (0.0, 50.0, 55.0)] == [None] * 3
    assert rates.wait("a", 59.0) == pytest.approx(1.0)
    # Sixty seconds after the first there is room for one, and not for three.
    assert rates.wait("a", WINDOW_SECONDS) is None
    assert rates.wait("a", 61.0) == pytest.approx(49.0)
    assert rates.wait("b", 61.0) is None
    assert [MinuteRates(0, 1).wait("a", 0.0) for _ in range(1_000)] == [None] * 1_000


def test_a_rate_forgets_the_quietest_key_and_survives_a_clock_that_is_set_back() -> None:
    rates = MinuteRates(1, most_keys=2)
    for key in ("a", "b", "c"):
        assert rates.wait(key, 0.0) is None
    # "a" was quiet longest, and is counted anew.
    assert rates.wait("c", 1.0) is not None
    assert rates.wait("a", 1.0) is None
    later = MinuteRates(1, most_keys=2)
    assert later.wait("a", 1_000_000.0) is None
    assert later.wait("a", 10.0) is None
