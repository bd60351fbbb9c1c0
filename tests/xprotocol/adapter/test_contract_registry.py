"""What is published and how often one may ask: the parts that need no server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moot.errors import UsageError
from moot.xprotocol.adapter.inbound.contract_registry import ContractRegistry, GrammarCache
from moot.xprotocol.contracts.source_overrides import SourceSettings
from moot.xprotocol.translation.publication import ServerOffer
from tests.xprotocol.adapter.adapter_environment import OBJECT, named, tool


def source(name: str, namespace: str = "com.acme.desk") -> SourceSettings:
    return SourceSettings(name=name, xprotocol_namespace=namespace)


async def test_a_kind_belongs_to_the_source_that_had_it_first_until_that_gives_it_up() -> None:
    registry = ContractRegistry.open(None)
    offer = ServerOffer(tools=[tool("read_note", schema=named("name"))])
    await registry.publish_source("one", source("one"), offer)
    second = await registry.publish_source("two", source("two"), offer)
    assert [each.reason for each in second.publication.refused] == ["kind_taken"]
    route = registry.route("com.acme.desk.read_note")
    assert route is not None
    assert route.source == "one"
    gone = await registry.remove_source("one")
    assert gone is not None
    assert gone.gone == ("com.acme.desk.read_note",)
    assert registry.route("com.acme.desk.read_note") is None
    assert len(registry.catalog) == 0
    await registry.publish_source("two", source("two"), offer)
    route = registry.route("com.acme.desk.read_note")
    assert route is not None
    assert route.source == "two"
    assert await registry.remove_source("never there") is None


async def test_a_version_is_on_disk_before_anybody_can_hear_of_it(tmp_path: Path) -> None:
    registry = ContractRegistry.open(tmp_path)
    await registry.publish_source("one", source("one"), ServerOffer(tools=[tool("read_note", schema=OBJECT)]))
    digest = registry.digest
    (tmp_path / "versions.json").unlink()
    # Nothing can be written in place of a folder.
    (tmp_path / "versions.json").mkdir()
    stricter = ServerOffer(tools=[tool("read_note", schema=named("name"))])
    with pytest.raises(UsageError, match="cannot be written"):
        await registry.publish_source("one", source("one"), stricter)
    assert registry.digest == digest
    (tmp_path / "versions.json").rmdir()
    taken = await registry.publish_source("one", source("one"), stricter)
    assert [change.version for change in taken.changes] == ["2.0.0"]
    again = ContractRegistry.open(tmp_path)
    taken = await again.publish_source("one", source("one"), stricter)
    assert (taken.changes, taken.gone) == ((), ())
    assert again.digest == registry.digest != digest


async def test_many_sources_at_once_lose_no_version(tmp_path: Path) -> None:
    registry = ContractRegistry.open(tmp_path)
    offer = ServerOffer(tools=[tool("read_note", schema=OBJECT)])
    names = [f"s{number}" for number in range(8)]
    await asyncio.gather(*(registry.publish_source(n, source(n, f"com.acme.{n}"), offer) for n in names))
    assert len(registry.catalog) == 8
    assert registry.grammars.compiled == 1
    again = ContractRegistry.open(tmp_path)
    found = [await again.publish_source(n, source(n, f"com.acme.{n}"), offer) for n in names]
    assert not any(taken.changes or taken.gone for taken in found)


def test_grammars_are_kept_by_schema_and_not_for_ever() -> None:
    grammars = GrammarCache(max_grammars=2)
    first = grammars(named("a"))
    assert grammars(named("a")) is first
    grammars(named("b"))
    grammars(named("c"))
    assert grammars.compiled == 3
    grammars(named("a"))
    assert grammars.compiled == 4
