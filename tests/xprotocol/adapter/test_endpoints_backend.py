"""What MCP clients see of an XProtocol endpoint, and what their calls come to (XP 4.2, 5.2, 5.3)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from moot.errors import (
    EndpointUnavailable,
    EventExpired,
    EventFault,
    McpError,
    SenderRevoked,
    SenderTooFast,
    UsageError,
)
from moot.mcp.downstream.backend import BackendCall, ListChanged, ResourceUpdated
from moot.protocol.operation import Json
from moot.xprotocol.adapter.outbound.outbound import read_call_proofs
from moot.xprotocol.adapter.telemetry.audit_log import AuditedCall
from moot.xprotocol.endpoint.endpoint_caller import CallProofs
from moot.xprotocol.events.access_rights import grant
from moot.xprotocol.events.delegation import delegate
from moot.xprotocol.events.event_composer import reply
from moot.xprotocol.events.events import DirectedEvent
from tests.waiting import HANG_SECONDS, until
from tests.xprotocol.adapter.outbound_environment import open_outbound, outbound_environment, source
from tests.xprotocol.adapter.stub_endpoint import CURRENT, FORECAST, GREETING, SECRET, STATIONS, stub_endpoint
from tests.xprotocol.people import ALICE, BOB, CAROL, EVE
from tests.xprotocol.relay.raw_client import relay_in


@pytest.mark.requirement("XP-0-4", "XP-2.2-3", "XP-7.1-2", "XP-3.1-35", "XP-9-2")
async def test_an_endpoint_is_a_set_of_tools(tmp_path: Path) -> None:
    """XP 4.2, as printed."""
    async with outbound_environment(tmp_path, mcp_tool_prefix="weather_") as out:
        tools = await out.outward.backend.offers("tools")
        assert [tool["name"] for tool in tools] == [
            "weather_current_get",
            "weather_forecast_get",
            "weather_station_reset",
        ]
        assert tools[0] == {
            "name": "weather_current_get",
            "description": "Get current weather conditions for a location\n\n"
            f"[XProtocol: weather.current.get via {BOB.key.text}]",
            "inputSchema": CURRENT.payload,
        }
        assert FORECAST.response is not None
        assert tools[1]["outputSchema"] == FORECAST.response.payload
        assert out.outward.backend.tool("weather_current_get") is tools[0]
        assert out.outward.backend.kind_of("weather_current_get") == (
            "weather-service",
            "weather.current.get",
        )


@pytest.mark.requirement("XP-2.2-4", "XP-5.2-1", "XP-5.2-4")
async def test_a_call_becomes_an_event_and_its_answer_a_result(tmp_path: Path) -> None:
    """XP 5.2, steps 1 to 8."""
    async with outbound_environment(tmp_path) as out:
        result = await out.call("weather_current_get", location="San Francisco")
        assert result == {
            "content": [{"type": "text", "text": "San Francisco: 17°C"}],
            "isError": False,
        }
        assert out.far.served[-1].event.kind == "weather.current.get"
        assert out.far.served[-1].payload == {"location": "San Francisco"}
        structured = await out.call("weather_forecast_get", location="Bern", days=2)
        assert structured["structuredContent"] == {"highs": [17, 18]}
        with pytest.raises(McpError, match="Unknown tool: weather_nothing") as caught:
            await out.call("weather_nothing")
        assert caught.value.code == -32602


@pytest.mark.requirement("XP-2.2-7", "XP-2.2-8")
async def test_prompts_are_shown_as_prompts(tmp_path: Path) -> None:
    """XP 4.5."""
    async with outbound_environment(tmp_path) as out:
        assert await out.outward.backend.offers("prompts") == [
            {
                "name": "weather_prompt_greet",
                "description": "Greet somebody with the weather\n\n"
                f"[XProtocol: {GREETING.kind} via {BOB.key.text}]",
                "arguments": [{"name": "name", "required": True}],
            }
        ]
        got = await out.do("prompts/get", name="weather_prompt_greet", arguments={"name": "Ada"})
        text = "Hello Ada, it is 17 degrees."
        assert got == {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
        with pytest.raises(McpError, match="Unknown prompt"):
            await out.do("prompts/get", name="weather_current_get")


@pytest.mark.requirement("XP-2.2-5", "XP-2.2-6")
async def test_resources_are_listed_read_and_followed(tmp_path: Path) -> None:
    """XP 4.5, D-78."""
    async with outbound_environment(tmp_path) as out:
        backend = out.outward.backend
        bern = "weather://stations/bern"
        listed = await backend.offers("resources")
        assert [each["uri"] for each in listed] == [bern]
        assert listed[0]["description"].startswith("[XProtocol: weather.resource.subscribe via ")
        assert [each["uriTemplate"] for each in await backend.offers("resourceTemplates")] == [
            "weather://stations/{name}"
        ]
        read = await out.do("resources/read", uri=bern)
        assert read == {"contents": [{"uri": bern, "text": "17"}]}
        assert out.far.followers == {}
        # Filled in from the template, and not listed.
        assert (await out.do("resources/read", uri="weather://stations/thun"))["contents"]
        with pytest.raises(McpError) as caught:
            await out.do("resources/read", uri="file:///etc/passwd")
        assert (caught.value.code, caught.value.data) == (-32002, {"uri": "file:///etc/passwd"})

        await backend.subscribe(bern)
        await backend.subscribe(bern)
        await out.far.change(23)
        await until(lambda: ResourceUpdated(bern) in out.changes)
        # Reading what is followed does not end it.
        assert (await out.do("resources/read", uri=bern))["contents"][0]["text"] == "23"
        out.changes.clear()
        await out.far.change(24)
        await until(lambda: ResourceUpdated(bern) in out.changes)
        await backend.unsubscribe(bern)
        assert len(out.far.followers) == 1
        await backend.unsubscribe(bern)
        assert out.far.followers == {}
        await backend.unsubscribe(bern)


async def test_what_is_followed_is_asked_for_again_when_the_endpoint_was_restarted(tmp_path: Path) -> None:
    async with outbound_environment(tmp_path) as out:
        bern = "weather://stations/bern"
        await out.outward.backend.subscribe(bern)
        out.far.followers.clear()
        await out.far.announce()
        await until(lambda: bool(out.far.followers))
        # Nobody knows what it missed, so it is told that something may have changed.
        await until(lambda: ResourceUpdated(bern) in out.changes)


@pytest.mark.requirement("XP-11.3-7")
@pytest.mark.parametrize(
    ("fault", "code", "message"),
    [
        (EventExpired("x"), -32600, "Event has expired"),
        (SenderRevoked("x"), -32600, "Sender key has been revoked"),
        (SenderTooFast("x", retry_after=3), -32600, "Rate limit exceeded"),
        (EndpointUnavailable("x"), -32603, "XProtocol endpoint unavailable"),
        (EventFault("x"), -32603, "Internal error"),
    ],
)
async def test_errors_are_the_tables(tmp_path: Path, fault: EventFault, code: int, message: str) -> None:
    """XP 5.3, over the wire."""
    async with outbound_environment(tmp_path) as out:

        async def fails(_event: DirectedEvent, _payload: dict[str, Json]) -> Json:
            raise fault

        out.far.handlers[CURRENT.kind] = fails
        with pytest.raises(McpError) as caught:
            await out.call("weather_current_get", location="Bern")
        assert (caught.value.code, caught.value.message) == (code, message)
        assert caught.value.data["xprotocol_code"] == fault.code
        if fault.retry_after is not None:
            assert caught.value.data["retry_after"] == fault.retry_after


@pytest.mark.requirement("XP-11.3-7")
async def test_refusals_of_an_endpoint_are_the_tables_too(tmp_path: Path) -> None:
    async with outbound_environment(tmp_path) as out:
        cases: list[tuple[str, dict[str, Any], int, str]] = [
            ("weather_station_reset", {}, -32600, "Insufficient capability for this operation"),
            ("weather_current_get", {}, -32602, "Request payload does not conform to schema"),
            ("weather_forecast_get", {"location": "x"}, -32600, "Resource or schema not found"),
        ]
        out.far.contracts.remove(FORECAST)
        for tool, arguments, code, message in cases:
            with pytest.raises(McpError) as caught:
                await out.call(tool, **arguments)
            assert (caught.value.code, caught.value.message) == (code, message)
        assert out.outward.backend.outcomes == {
            "AUTHORIZATION_INSUFFICIENT": 1,
            "SCHEMA_VIOLATION": 1,
            "NOT_FOUND": 1,
        }


async def test_an_endpoint_that_is_silent_or_away_is_unavailable_in_time(tmp_path: Path) -> None:
    async with outbound_environment(tmp_path, call_timeout_seconds=0.5) as out:

        async def never(_request: DirectedEvent, _kind: str, _payload: Json) -> None:
            return

        out.far.answer = never
        with pytest.raises(McpError) as caught:
            await out.call("weather_current_get", location="Bern")
        assert (caught.value.code, caught.value.message) == (-32603, "XProtocol endpoint unavailable")
        assert "did not answer within 0.5 s" in caught.value.data["detail"]


async def test_answers_that_no_result_can_be_made_of_are_errors(tmp_path: Path) -> None:
    async with outbound_environment(tmp_path) as out:
        say: list[Json] = [None]

        async def answer(request: DirectedEvent, kind: str, _payload: Json) -> None:
            await out.far.relays.publish(reply(BOB, request, kind, say[0], now=time.time()))

        out.far.answer = answer
        say[0] = [1, "two", None]
        shown = await out.call("weather_current_get", location="Bern")
        assert shown["content"] == [{"type": "text", "text": '[1,"two",null]'}]
        say[0] = {"content": "broke", "isError": True}
        assert (await out.call("weather_current_get", location="Bern"))["isError"] is True
        say[0] = {"nothing": "here"}
        with pytest.raises(McpError) as caught:
            await out.do("prompts/get", name="weather_prompt_greet", arguments={"name": "Ada"})
        assert caught.value.code == -32603
        with pytest.raises(McpError):
            await out.do("resources/read", uri="weather://stations/bern")


async def test_arguments_that_break_the_contract_never_leave(tmp_path: Path) -> None:
    async with outbound_environment(tmp_path) as out:
        before = len(out.far.served)
        for arguments, words in (
            ({}, "lacks the member 'location'"),
            ({"location": 7}, "/location has to be string"),
            ({"location": "Bern", "units": "kelvin"}, "/units is none of the values listed"),
        ):
            with pytest.raises(McpError) as caught:
                await out.call("weather_current_get", **arguments)
            assert caught.value.code == -32602
            assert words in caught.value.data["detail"]
        assert (len(out.far.served), out.far.refused) == (before, [])
        assert out.outward.backend.outcomes["SCHEMA_VIOLATION"] == 3


async def test_an_answer_that_breaks_the_announced_output_schema_is_an_error_that_says_so(
    tmp_path: Path,
) -> None:
    async with outbound_environment(tmp_path) as out:
        say: list[Json] = [None]

        async def answer(request: DirectedEvent, kind: str, _payload: Json) -> None:
            await out.far.relays.publish(reply(BOB, request, kind, say[0], now=time.time()))

        out.far.answer = answer
        wrong: list[Json] = [{"highs": 17}, {"lows": []}, [], {"content": "17 degrees"}]
        for broken in wrong:
            say[0] = broken
            with pytest.raises(McpError) as caught:
                await out.call("weather_forecast_get", location="Bern")
            assert "breaks the outputSchema of its contract" in caught.value.message, broken
        say[0] = {"content": "no such town", "isError": True}
        assert (await out.call("weather_forecast_get", location="Bern"))["isError"] is True
        say[0] = {"highs": []}
        assert (await out.call("weather_forecast_get", location="Bern"))["structuredContent"] == say[0]


async def test_many_calls_at_once_each_get_their_own_answer_and_cancelling_ends_one(tmp_path: Path) -> None:
    async with outbound_environment(tmp_path) as out:
        results = await asyncio.gather(
            *(out.call("weather_current_get", location=f"L{n}") for n in range(60))
        )
        assert [each["content"][0]["text"] for each in results] == [f"L{n}: 17°C" for n in range(60)]

        async def never(_request: DirectedEvent, _kind: str, _payload: Json) -> None:
            return

        out.far.answer = never
        call = asyncio.create_task(out.call("weather_current_get", location="Bern"))
        await until(lambda: out.outward.caller.pending_count == 1)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert out.outward.caller.pending_count == 0


async def test_two_sources_that_want_one_name_both_get_another(tmp_path: Path) -> None:
    """D-68: a newcomer never takes a name over."""
    async with (
        relay_in(tmp_path) as relay,
        stub_endpoint(relay.url, BOB, CURRENT, FORECAST, caller=ALICE),
        stub_endpoint(relay.url, CAROL, CURRENT, caller=ALICE) as carol,
    ):
        carol.temperature = 30
        first = source(relay.url, "one")
        second = source(relay.url, "two", key=CAROL.key.text)
        async with open_outbound(relay.url, first) as outward:
            await outward.wait_settled(HANG_SECONDS)
            tools = [tool["name"] for tool in await outward.backend.offers("tools")]
            assert tools == ["weather_current_get", "weather_forecast_get"]
            await outward.replace_sources([first, second])
            await outward.wait_settled(HANG_SECONDS)
            names = [tool["name"] for tool in await outward.backend.offers("tools")]
            assert len(set(names)) == 3
            assert "weather_current_get" not in names
            assert "weather_forecast_get" in names
            kinds = {outward.backend.kind_of(name) for name in names}
            assert kinds == {("one", CURRENT.kind), ("one", FORECAST.kind), ("two", CURRENT.kind)}
            assert {each["endpoint"]: each["tools"] for each in outward.health()} == {
                BOB.key.text: 2,
                CAROL.key.text: 1,
            }
            assert [(each.name, each.tool_count) for each in outward.mirrored()] == [
                ("one", 2),
                ("two", 1),
            ]
            await outward.replace_sources([second])
            assert [tool["name"] for tool in await outward.backend.offers("tools")] == ["weather_current_get"]


@pytest.mark.requirement("XP-6.4-1", "XP-6.4-3")
async def test_an_adapter_acts_for_a_user_by_a_delegation_and_with_grants_from_files(tmp_path: Path) -> None:
    """XP 6.4: sender is the adapter, the delegation is named, the action is booked on the user."""
    now = time.time()
    chain = delegate(CAROL, ALICE.key.text, ["weather.read"], ends=int(now) + 600, now=now)
    given = grant(BOB, CAROL.key.text, ["weather.read"], ends=int(now) + 600, now=now)
    (tmp_path / "chain.json").write_bytes(chain.raw)
    (tmp_path / "grants.json").write_bytes(b"[" + given.raw + b"]")
    async with outbound_environment(
        tmp_path, delegation_event=tmp_path / "chain.json", proofs=(tmp_path / "grants.json",)
    ) as out:
        out.far.access.clear()
        out.far.trust = frozenset({CAROL.key.text})
        await out.call("weather_current_get", location="Bern")
        served = out.far.served[-1]
        assert (served.event.sender, served.event.delegation) == (ALICE.key.text, chain.event.id)
        assert served.caller.principal == CAROL.key.text
        assert served.payload == {"location": "Bern"}


def test_files_that_prove_nothing_for_us_are_said_so(tmp_path: Path) -> None:
    now = time.time()
    other = delegate(CAROL, EVE.key.text, ["weather.read"], ends=int(now) + 600, now=now)
    given = grant(BOB, EVE.key.text, ["weather.read"], ends=int(now) + 600, now=now)
    for name, raw in (("other", other.raw), ("given", given.raw), ("none", b"{}"), ("text", b"no")):
        (tmp_path / name).write_bytes(raw)
    tampered = orjson.loads(given.raw)
    tampered["payload"]["capabilities"] = ["weather.admin"]
    (tmp_path / "tampered").write_bytes(orjson.dumps(tampered))
    for more, words in (
        ({"delegation_event": tmp_path / "other"}, "expected one delegation to"),
        ({"delegation_event": tmp_path / "text"}, "not a delegation"),
        ({"proofs": (tmp_path / "given",)}, "is a grant for"),
        ({"proofs": (tmp_path / "none",)}, "holds no xp.capability.grant"),
        ({"proofs": (tmp_path / "tampered",)}, "holds no xp.capability.grant"),
        ({"proofs": (tmp_path / "missing",)}, "missing"),
    ):
        with pytest.raises(UsageError, match=words):
            read_call_proofs(source("wss://r.example", **more), ALICE.key.text)
    assert read_call_proofs(source("wss://r.example"), ALICE.key.text) == CallProofs()


async def test_every_call_is_told_of_when_it_is_over_without_what_was_in_it(tmp_path: Path) -> None:
    """XP 8.6: for the audit log."""
    asked: list[AuditedCall] = []
    async with (
        relay_in(tmp_path) as relay,
        stub_endpoint(relay.url, BOB, caller=ALICE) as far,
        open_outbound(relay.url, source(relay.url), on_call=asked.append) as outward,
    ):
        await outward.wait_settled(HANG_SECONDS)

        async def call(name: str, **arguments: Any) -> None:
            await outward.backend.perform(BackendCall("tools/call", {"name": name, "arguments": arguments}))

        await call("weather_current_get", location="a secret place")
        with pytest.raises(McpError):
            await call("weather_station_reset")

        async def never(_request: DirectedEvent, _kind: str, _payload: Json) -> None:
            return

        far.answer = never
        task = asyncio.create_task(call("weather_current_get", location="Bern"))
        await until(lambda: outward.caller.pending_count == 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await outward.backend.offers("tools")
        answer = [(each.source, each.kind, each.outcome) for each in asked]
        assert answer == [
            ("weather-service", CURRENT.kind, "ok"),
            ("weather-service", SECRET.kind, "AUTHORIZATION_INSUFFICIENT"),
            ("weather-service", CURRENT.kind, "CANCELLED"),
        ]
        assert {each.key for each in asked} == {BOB.key.text}
        assert "secret place" not in repr(asked)


async def test_a_uri_that_two_sources_have_leads_to_each_by_a_name_of_its_own(tmp_path: Path) -> None:
    async with (
        relay_in(tmp_path) as relay,
        stub_endpoint(relay.url, BOB, STATIONS, caller=ALICE),
        stub_endpoint(relay.url, CAROL, STATIONS, caller=ALICE) as carol,
    ):
        carol.temperature = 30
        two = [source(relay.url, "one"), source(relay.url, "two", key=CAROL.key.text)]
        async with open_outbound(relay.url, *two) as outward:
            await outward.wait_settled(HANG_SECONDS)
            uris = [each["uri"] for each in await outward.backend.offers("resources")]
            bern = "weather://stations/bern"
            assert uris == [bern, f"xprotocol://two/{bern}"]
            # Templates, too; and what is filled into one may name its source.
            for uri, text in ((bern, "17"), (uris[1], "30"), (f"xprotocol://two/{bern}x", "30")):
                read = await outward.backend.perform(BackendCall("resources/read", {"uri": uri}))
                assert isinstance(read, dict)
                assert [(each["uri"], each["text"]) for each in read["contents"]] == [(uri, text)]


async def test_too_many_calls_at_once_are_told_to_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moot.xprotocol.adapter.outbound.outbound.MAX_OUTBOUND_CALLS", 2)
    async with (
        relay_in(tmp_path) as relay,
        stub_endpoint(relay.url, BOB, caller=ALICE) as far,
        open_outbound(relay.url, source(relay.url)) as outward,
    ):
        await outward.wait_settled(HANG_SECONDS)

        async def never(_request: DirectedEvent, _kind: str, _payload: Json) -> None:
            return

        far.answer = never
        call = BackendCall("tools/call", {"name": "weather_current_get", "arguments": {"location": "Bern"}})
        tasks = [asyncio.create_task(outward.backend.perform(call)) for _ in range(2)]
        await until(lambda: outward.caller.pending_count == 2)
        with pytest.raises(McpError, match="Rate limit exceeded") as caught:
            await outward.backend.perform(call)
        assert "calls are pending" in caught.value.data["detail"]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_lists_tell_when_they_change_and_only_then(tmp_path: Path) -> None:
    async with outbound_environment(tmp_path, CURRENT) as out:
        out.changes.clear()
        await out.outward.refresh()
        assert out.changes == []
        out.far.contracts.append(GREETING)
        await out.far.announce()
        await until(lambda: bool(out.changes))
        assert out.changes == [ListChanged("prompts")]
        out.far.contracts.remove(CURRENT)
        out.far.contracts.append(SECRET)
        await out.far.announce()
        await until(lambda: len(out.changes) > 1)
        assert out.changes[1:] == [ListChanged("tools")]


async def test_no_call_is_made_that_could_not_be_recorded(tmp_path: Path) -> None:
    asked: list[AuditedCall] = []
    accepts_calls = True
    async with (
        relay_in(tmp_path / "relay") as relay,
        stub_endpoint(relay.url, BOB, caller=ALICE) as far,
        open_outbound(
            relay.url, source(relay.url), on_call=asked.append, accepts_calls=lambda: accepts_calls
        ) as outward,
    ):
        await outward.wait_settled(HANG_SECONDS)
        call = BackendCall("tools/call", {"name": "weather_current_get", "arguments": {"location": "Bern"}})
        await outward.backend.perform(call)
        served = len(far.served)
        accepts_calls = False
        with pytest.raises(McpError) as caught:
            await outward.backend.perform(call)
        assert caught.value.data["detail"].endswith("while its audit log cannot be written")
        assert len(far.served) == served
        assert [(each.outcome, each.is_refused) for each in asked] == [
            ("ok", False),
            ("ENDPOINT_UNAVAILABLE", True),
        ]
