"""What operators do on one gateway holds on all of them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from functools import partial
from types import ModuleType

import yaml

from moot.config import load
from moot.gateway.cluster import log_order
from moot.gateway.hosting import rights_changes, space_host, space_records
from moot.protocol.operation import Json
from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.cluster.nats_proxy import proxied
from tests.gateway.cluster.nats_servers import NatsServers
from tests.gateway.running_gateway import LocalGateway
from tests.waiting import until, until_told


def test_every_input_of_a_host_is_known_to_the_log() -> None:
    """One that is not would be answered and change nothing."""
    modules = (space_host, rights_changes, log_order)
    submitted = set().union(*(_first_words(each, ("submit", "_change")) for each in modules))
    assert {"sign_out", "rotate", "capabilities", "poll", "reload", "join", "leave", "expire"} <= submitted
    assert submitted - _matched(space_records.apply_act) - _matched(log_order.LogOrder.apply) == set()


async def test_a_short_lived_token_of_one_gateway_is_valid_on_the_other(start: StartGateway) -> None:
    async with start("a") as a, start("b") as b:
        made = await a.admin("POST", "participants/bob/tokens", {"seconds": 3600}, space="lab")
        assert made.status_code == 201, made.text
        await until(lambda: _tokens(b))
        assert await b.status("/ws?space=lab", token=made.json()["token"]) == 101


async def test_capabilities_change_on_all_gateways(start: StartGateway) -> None:
    async with start("a") as a, start("b") as b:
        bob = await b.join("bob")
        gone = await a.admin(
            "POST", "participants/bob/capabilities", {"remove": [{"kind": "*"}]}, space="lab"
        )
        assert gone.status_code == 200, gone.text
        await bob.hear("system/welcome")
        assert await bob.refused("chat", {"text": "no"}) == "capability_violation"


async def test_who_is_let_in_by_a_reload_of_one_gateway_holds_at_all(start: StartGateway) -> None:
    """`access: restricted` ends connections of those whom the space does not list; `admit` lets them in."""
    async with start("a") as a, start("b") as b:
        alice = await a.join("alice")
        token = (await alice.ask("space/invite", {"participant_id": "zoe"}))["payload"]["token"]
        await until_told(partial(_answers, b, token, 101))
        zoe = await b.open("/ws?space=lab", token=token)
        _reload(a, access="restricted")
        await zoe.closed()
        await until_told(partial(_answers, a, token, 403))
        await until_told(partial(_answers, b, token, 403))
        _reload(b, access="restricted", admit=["zoe"])
        await until_told(partial(_answers, a, token, 101))


async def test_who_joins_behind_the_reload_that_excludes_them_is_not_let_in(
    start: StartGateway, nats: NatsServers
) -> None:
    """The gateway let them in by what it knew; the log has the reload first."""
    async with (
        proxied(nats) as (proxy, address),
        start("a") as a,
        start("b", cluster={"servers": [address]}) as b,
    ):
        alice = await a.join("alice")
        token = (await alice.ask("space/invite", {"participant_id": "zoe"}))["payload"]["token"]
        assert await b.status("/ws?space=lab", token=token) == 101
        proxy.part()
        zoe = await b.open("/ws?space=lab", token=token)
        _reload(a, access="restricted")
        await until(lambda: a.gateway.directory.hosts["lab"].space.state.config.access == "restricted")
        proxy.heal()
        await zoe.closed()


def _reload(gateway: LocalGateway, **settings: Json) -> None:
    """As SIGHUP does after the file was changed."""
    file = gateway.folder / "moot.yaml"
    changed = yaml.safe_load(file.read_text("utf-8"))
    changed["spaces"]["lab"] |= settings
    file.write_text(yaml.safe_dump(changed), "utf-8")
    gateway.gateway.reload(load(file, environ={}))


async def _answers(gateway: LocalGateway, token: str, status: int) -> bool:
    return await gateway.status("/ws?space=lab", token=token) == status


def _tokens(gateway: LocalGateway) -> bool:
    return bool(gateway.gateway.directory.hosts["lab"].space.state.temporary_tokens)


def _first_words(module: ModuleType, methods: tuple[str, ...]) -> set[str]:
    calls = (each for each in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(each, ast.Call))
    return {
        str(call.args[0].value)
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in methods
        and call.args
        and isinstance(call.args[0], ast.Constant)
    }


def _matched(function: Callable[..., object]) -> set[str]:
    source = textwrap.dedent(inspect.getsource(function))
    values = (each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.MatchValue))
    return {str(each.value.value) for each in values if isinstance(each.value, ast.Constant)}
