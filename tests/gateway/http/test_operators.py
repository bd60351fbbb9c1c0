"""What operators see and do over HTTP: health, metrics, spaces, administration, and the OpenAPI document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moot.protocol.operation import Json
from moot.space.config import Name
from tests.gateway.running_gateway import (
    CALL,
    LocalGateway,
    SharedGateway,
    gateway_settings,
    participants,
    running_gateway,
    space_settings,
    write_config,
)

PEOPLE = participants(alice=["*"], bob=["chat"], carol=["chat"], dora=["chat"])


@pytest.fixture(scope="module")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedGateway]:
    spaces = {
        "default": space_settings(PEOPLE),
        "other": space_settings(participants(bob=["chat"], zoe=["*"])),
    }
    shared_gateway = SharedGateway(
        tmp_path_factory.mktemp("operators"), spaces, max_connections_per_address=0
    )
    yield shared_gateway
    shared_gateway.close()


@pytest.mark.requirement("MEW-0-2", "MCPX-0-1")
async def test_health_says_ok_and_names_the_protocols(shared_gateway: SharedGateway) -> None:
    answer = await shared_gateway.gateway.http.get("/health")
    body = answer.json()
    assert answer.status_code == 200
    assert body["status"] == "ok"
    assert {"mew/v0.4", "mcpx/v0.1"} <= set(body["protocols"])
    assert "t-" not in answer.text
    assert not {"alice", "bob"} & set(re.findall(r"\w+", answer.text))


LABEL = r"[a-zA-Z_]\w*=\"(?:[^\"\\\n]|\\[\\\"n])*\""
SAMPLE = re.compile(
    rf"([a-zA-Z_:][\w:]*)(\{{{LABEL}(?:,{LABEL})*,?\}})? (NaN|[+-]?Inf|[-+0-9.eE]+)", re.ASCII
)


async def samples(gateway: LocalGateway) -> dict[str, float]:
    """Name with labels → value; every line has to be one that Prometheus reads."""
    answer = await gateway.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found: dict[str, float] = {}
    typed: set[str] = set()
    for line in answer.text.splitlines():
        if line.startswith("# TYPE "):
            typed.add(line.split(" ")[2])
        elif not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            assert re.sub(r"_(bucket|sum|count)$", "", match[1]) in typed, line
            assert match[1] + (match[2] or "") not in found, f"twice: {line}"
            found[match[1] + (match[2] or "")] = float(match[3])
    return found


@pytest.mark.requirement("MEW-7.3-5")
async def test_metrics_are_what_prometheus_reads_and_count_violations(shared_gateway: SharedGateway) -> None:
    before = await samples(shared_gateway.gateway)
    bob = await shared_gateway.gateway.join("bob", space="default")
    for _ in range(3):
        assert await bob.refused("mcp/request", CALL) == "capability_violation"
    after = await samples(shared_gateway.gateway)
    grown = {
        name for name in after if after[name] >= before.get(name, 0) + 3 and "capability_violation" in name
    }
    assert grown, after
    text = (await shared_gateway.gateway.http.get("/metrics")).text
    assert "bob" not in text
    assert "t-bob" not in text


async def test_spaces_lists_those_that_a_token_opens(shared_gateway: SharedGateway) -> None:
    async def spaces(token: str | None) -> Any:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        answer = await shared_gateway.gateway.http.get("/spaces", headers=headers)
        return [each["name"] for each in answer.json()["spaces"]] if answer.is_success else answer.status_code

    assert await spaces("t-alice") == ["default"]
    assert await spaces("t-bob") == ["default", "other"]
    assert await spaces("t-zoe") == ["other"]
    assert await spaces("wrong") == 401
    assert await spaces(None) == 401


@pytest.mark.requirement("MEW-10.1-1", "MCPX-10.1-1", "MEW-8.1-4", "MCPX-8.1-4")
async def test_connections_show_what_is_kept_of_each_socket(shared_gateway: SharedGateway) -> None:
    for _ in range(2):
        await shared_gateway.gateway.join("bob", space="default")
    await shared_gateway.gateway.join("zoe", "&dialect=mcpx", space="other")
    answer = await shared_gateway.gateway.admin("GET", "connections")
    rows = answer.json()["connections"]
    assert [(row["participant_id"], row["space"], row["dialect"]) for row in rows] == [
        ("bob", "default", "mew"),
        ("bob", "default", "mew"),
        ("zoe", "other", "mcpx"),
    ]
    assert len({row["connection_id"] for row in rows}) == 3
    assert rows[0]["capabilities"] == [{"kind": "chat"}]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", rows[0]["connected_at"])
    for token in ("t-alice", "t-root-", "-"):
        refused = await shared_gateway.gateway.http.get(
            "/admin/connections", headers={"Authorization": f"Bearer {token}"}
        )
        assert refused.status_code in (401, 403)
        assert "bob" not in refused.text


@pytest.mark.requirement("MCPX-10.3-1", "MCPX-10.3-2", "MCPX-10.3-3")
async def test_an_administrator_adds_and_removes_and_the_member_is_told(
    shared_gateway: SharedGateway,
) -> None:
    carol = await shared_gateway.gateway.join("carol", space="default")
    change: Json = {"add": [{"kind": "mcp/request"}], "remove": [{"kind": "chat"}]}
    answer = await shared_gateway.gateway.admin("POST", "participants/carol/capabilities", change)
    body = answer.json()
    assert answer.status_code == 200
    assert body["participantId"] == "carol"
    assert body["oldCapabilities"] == [{"kind": "chat"}]
    assert body["newCapabilities"] == [{"kind": "mcp/request"}]
    assert body["modifiedBy"] == "root"
    assert body["modifiedAt"].endswith("Z")
    welcome = await carol.hear("system/welcome")
    assert welcome["payload"]["you"]["capabilities"] == [{"kind": "mcp/request"}]
    assert await carol.refused("chat") == "capability_violation"
    assert await carol.refused("mcp/request", CALL, to=["alice"]) is None
    strings: Json = {"add": ["mcp/request:tools/call:read_*", "chat"], "remove": ["mcp/request:*"]}
    answer = await shared_gateway.gateway.admin("POST", "participants/carol/capabilities", strings)
    assert answer.status_code == 200, answer.text
    assert "mcp/request:tools/call:read_*" in answer.json()["newCapabilities"]


@pytest.mark.requirement("MCPX-10.3-4")
async def test_others_get_403_and_nothing_changes(shared_gateway: SharedGateway) -> None:
    for token in ("t-alice", "t-bob", "wrong", None):
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        for where in ("participants/bob/capabilities", "participants/bob/restore"):
            answer = await shared_gateway.gateway.http.post(
                f"/admin/{where}", json={"add": ["*"]}, headers=headers
            )
            assert answer.status_code in ((401, 403) if token is None else (403,)), where
    bob = await shared_gateway.gateway.join("bob", space="default")
    assert bob.received[0]["payload"]["you"]["capabilities"] == [{"kind": "chat"}]


BAD_CHANGES: dict[str, tuple[str, Json, dict[str, str], int]] = {
    "nobody": ("nobody", {"add": []}, {}, 404),
    "unknown space": ("bob", {"add": []}, {"space": "nowhere"}, 404),
    "add is a number": ("bob", {"add": 5}, {}, 400),
    "add is nothing": ("bob", {"add": None}, {}, 400),
    "add is text": ("bob", {"add": "chat"}, {}, 400),
    "no capability": ("bob", {"add": [5]}, {}, 400),
    "one of two is wrong": ("bob", {"add": [{"kind": "chat/*"}, {"kind": "x", "unknown": 1}]}, {}, 400),
    "a bad expression": ("bob", {"add": [{"kind": "/(/"}]}, {}, 400),
    "unknown key": ("bob", {"grant": []}, {}, 400),
    "a list": ("bob", [], {}, 400),
}


@pytest.mark.parametrize(("name", "body", "params", "status"), BAD_CHANGES.values(), ids=BAD_CHANGES)
async def test_a_change_that_is_wrong_in_one_place_changes_nothing(
    shared_gateway: SharedGateway, name: str, body: Json, params: dict[str, str], status: int
) -> None:
    """D-55: atomic."""
    answer = await shared_gateway.gateway.admin("POST", f"participants/{name}/capabilities", body, **params)
    assert answer.status_code == status, answer.text
    assert answer.json()["message"]
    bob = await shared_gateway.gateway.join("bob", space="default")
    assert bob.received[0]["payload"]["you"]["capabilities"] == [{"kind": "chat"}]


async def test_a_removed_member_comes_back_only_by_the_administrator_with_a_new_token(
    shared_gateway: SharedGateway,
) -> None:
    """D-24."""
    gateway = shared_gateway.gateway
    alice, dora = await gateway.join("alice", space="default"), await gateway.join("dora", space="default")
    assert (await gateway.admin("POST", "participants/dora/restore")).status_code == 400
    await alice.ask("space/kick", {"participant_id": "dora", "reason": "enough"})
    assert (await dora.closed())[0] == 4003
    assert await gateway.status("/ws?space=default", token="t-dora") == 401
    assert (await gateway.post("dora", {"kind": "chat"})).status_code == 403
    answer = await gateway.admin("POST", "participants/dora/restore")
    assert answer.status_code == 200
    assert await gateway.status("/ws?space=default", token="t-dora") == 401
    back = await gateway.open("/ws?space=default", token=answer.json()["token"])
    assert (await back.next())["payload"]["you"]["id"] == "dora"
    assert (await gateway.admin("POST", "participants/dora/restore")).status_code == 400
    assert (await gateway.admin("POST", "participants/nobody/restore")).status_code == 404


async def test_without_admin_tokens_there_is_no_administration(tmp_path: Path) -> None:
    settings = gateway_settings({"lab": space_settings(PEOPLE)})
    del settings["gateway"]["admin_tokens"]
    async with running_gateway(tmp_path, file=write_config(tmp_path, settings)) as gateway:
        for method, where in (
            ("GET", "connections"),
            ("POST", "participants/bob/capabilities"),
            ("POST", "participants/bob/restore"),
        ):
            for token in ("t-root", "-", "t-alice"):
                headers = {"Authorization": f"Bearer {token}"}
                answer = await gateway.http.request(method, f"/admin/{where}", headers=headers, json={})
                assert answer.status_code in (401, 403, 404)


# The document


async def test_openapi_is_true_to_the_routes(shared_gateway: SharedGateway) -> None:
    """Everything that it names answers, with a status that it names; everything else is 404 or 405."""
    document = (await shared_gateway.gateway.http.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    methods = ["GET", "POST", "PUT", "DELETE", "PATCH", "TRACE"]
    for path, operations in document["paths"].items():
        for method in methods:
            for headers in ({}, {"Authorization": "Bearer t-root"}, {"Authorization": "Bearer t-alice"}):
                answer = await shared_gateway.gateway.http.request(
                    method, path.replace("{id}", "alice"), headers=headers
                )
                described = operations.get(method.lower())
                if described is None:
                    assert answer.status_code == 405, (method, path)
                    continue
                assert str(answer.status_code) in described["responses"], (
                    method,
                    path,
                    headers,
                    answer.text,
                )
                content = described["responses"][str(answer.status_code)].get("content", {})
                if content:
                    assert answer.headers["content-type"].split(";")[0] in content
    for unknown in ("/nope", "/participants", "/participants/alice", "/admin", "/docs", "/redoc", "/ws"):
        answer = await shared_gateway.gateway.http.get(unknown)
        assert answer.status_code == 404, unknown
        assert answer.json()["error"] == "not_found"


async def test_every_reference_of_the_document_leads_somewhere(shared_gateway: SharedGateway) -> None:
    document = (await shared_gateway.gateway.http.get("/openapi.json")).json()
    for reference in re.findall(r'"\$ref": ?"#/([^"]+)"', json.dumps(document)):
        place: Any = document
        for step in reference.split("/"):
            place = place[step]
    for path, operations in document["paths"].items():
        for described in operations.values():
            named = {each["name"] for each in described.get("parameters", []) if each["in"] == "path"}
            assert named == set(re.findall(r"\{(\w+)\}", path))
            assert described["responses"]
            assert "security" in described or path in (
                "/",
                "/console/{path}",
                "/service-worker.js",
                "/manifest.webmanifest",
                "/status",
                "/health",
                "/livez",
                "/readyz",
                "/metrics",
                "/openapi.json",
                # The code in the body is what is asked for.
                "/sign-in-links/redeem",
                # A ticket in the body, and what a passkey signed.
                "/passkeys",
                "/passkey-sign-in",
                "/passkey-sign-in/options",
                # Where to sign in; and a token in the body.
                "/oidc",
                "/oidc/backchannel-logout",
            )


async def test_a_violation_can_be_announced_to_the_space(tmp_path: Path) -> None:
    """MEW 7.3, D-32: off by default; the notice names who and what, and no capabilities."""
    async with running_gateway(tmp_path, PEOPLE, rules={"violation_notice": True}) as gateway:
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        await alice.fence()
        assert await bob.refused("mcp/request", CALL) == "capability_violation"
        (notice,) = await alice.fence()
        assert notice["payload"] == {
            "error": "capability_violation",
            "participant": "bob",
            "attempted_kind": "mcp/request",
        }


async def test_a_right_is_given_in_the_notation_that_it_was_written_in(tmp_path: Path) -> None:
    """`mcp/*` has other kinds in MCPx than in MEW; also after a restart, from the journal."""
    spaces = {"lab": space_settings(participants(alice=["*"], bob=["chat"])) | {"dialects": ["mcpx"]}}
    found: list[list[tuple[str, Json]]] = []
    for _ in range(2):
        async with running_gateway(tmp_path, spaces=spaces) as gateway:
            if not found:
                body: Json = {"add": ["mcp/*"]}
                answer = await gateway.admin("POST", "participants/bob/capabilities", body, space="lab")
                assert answer.status_code == 200, answer.text
            member = gateway.gateway.directory.hosts["lab"].space.state.roster.members[Name("bob")]
            found.append([(each.notation, each.original) for each in member.rights.capabilities])
    assert found[0][-1] == found[1][-1] == ("mcpx", "mcp/*")
