"""A receipt over HTTP, out of a running gateway, verified with its public key alone."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from moot.cli import main
from moot.evidence.log_keys import use_keys
from moot.evidence.receipt_verify import policy_of_key, verify_receipt
from tests.gateway.running_gateway import LocalGateway, participants, running_gateway

PEOPLE = participants(agent=["mcp/proposal"], ana=["*"], host=[])
CALL: dict[str, Any] = {"method": "tools/call", "params": {"name": "pay", "arguments": {"amount": 1}}}


async def ask(gateway: LocalGateway, id: str, token: str = "t-ana", **params: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"}
    return await gateway.http.get(f"/spaces/lab/receipts/{id}", headers=headers, params=params)


async def test_a_log_that_is_not_open_yet_is_not_called_missing(tmp_path: Path) -> None:
    for is_on, status in ((True, 503), (False, 404)):
        folder = tmp_path / str(status)
        folder.mkdir()
        async with running_gateway(folder, PEOPLE, journal={"log": is_on}) as gateway:
            keeper = gateway.gateway.logs
            if keeper._task is not None:
                keeper._task.cancel()
            keeper.logs.clear()
            for path in ("receipts/p1", "log/checkpoint"):
                headers = {"Authorization": "Bearer t-ana"}
                told = await gateway.http.get(f"/spaces/lab/{path}", headers=headers)
                assert told.status_code == status, told.text


async def test_a_receipt_of_a_gateway_holds_offline_and_a_changed_one_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        agent, ana, host = [await gateway.join(name) for name in PEOPLE]
        assert await agent.refused("mcp/proposal", CALL, to=["host"], id="proposal-1") is None
        assert (await ask(gateway, "proposal-1")).status_code == 409
        body = {"jsonrpc": "2.0", "id": 1}
        assert (
            await ana.refused("mcp/request", body | CALL, to=["host"], about=["proposal-1"], id="r1") is None
        )
        answer = body | {"result": {"content": [{"type": "text", "text": "secret result"}]}}
        assert await host.refused("mcp/response", answer, to=["ana"], about=["r1"]) is None
        told = await ask(gateway, "proposal-1")
        assert told.status_code == 200, told.text
        assert "secret result" not in told.text
        shown = await ask(gateway, "r1", show="response")
        # As lists show it: the beginning is enough.
        begun = await ask(gateway, "prop")
        assert json.loads(begun.content)["about"] == "proposal-1"
        for wrong in ({"show": "sign-in"}, {"show": "nothing"}, {"who": "ana"}):
            assert (await ask(gateway, "proposal-1", **wrong)).status_code == 400
        assert (await ask(gateway, "p2")).status_code == 404
        assert (await ask(gateway, "proposal-1", "t-nobody")).status_code == 401
        data = gateway.gateway.config.data
    origin = json.loads(told.content)["records"][0]["proof"].split("\n\n")[1].split("\n")[0]
    key = str(use_keys(data).signer(origin).verifier)
    verdict = verify_receipt(told.content, policy_of_key(key))
    assert verdict.problems == []
    assert verdict.claims is not None
    assert [(each.by, each.how) for each in verdict.claims.decisions] == [("ana", "approved")]
    assert verify_receipt(shown.content, policy_of_key(key)).claims.state == "done"  # type: ignore[union-attr]
    assert main(["receipt", "key", "--data", str(data)]) == 0
    assert capsys.readouterr().out == f"{key}\n"
    # And by the command, from the data folder, without a gateway.
    made, changed = tmp_path / "made.json", tmp_path / "changed.json"
    assert main(["receipt", "proposal-1", "--data", str(data), "-o", str(made)]) == 0
    assert main(["receipt", "propos", "--data", str(data), "-o", str(tmp_path / "begun.json")]) == 0
    assert (tmp_path / "begun.json").read_bytes() == made.read_bytes()
    assert main(["receipt", "verify", str(made), "--key", key]) == 0
    assert "ana approved" in capsys.readouterr().out
    # Without one field, for which the log's key signs: it is in the folder only.
    part, field = tmp_path / "part.json", "/params/arguments/amount"
    assert main(["receipt", "proposal-1", "--data", str(data), "--withhold", field, "-o", str(part)]) == 0
    assert main(["receipt", "verify", str(part), "--key", key]) == 0
    assert f"/raw/payload{field}, /s; the log's key signed" in capsys.readouterr().out
    assert main(["receipt", "proposal-1", "--withhold", field]) == 2
    # Signed anew, as COSE: over the entry of the record of the decision.
    cose = tmp_path / "made.cose"
    assert main(["receipt", "proposal-1", "--data", str(data), "--cose", "-o", str(cose)]) == 0
    (line,) = (each["line"] for each in json.loads(made.read_text())["records"] if each["role"] == "request")
    assert sha256(line.encode()).hexdigest() in capsys.readouterr().err
    assert cose.read_bytes()[:2] == b"\xd2\x84"
    assert origin.encode() in cose.read_bytes()
    assert main(["receipt", "proposal-1", "--cose"]) == 2
    capsys.readouterr()
    changed.write_bytes(made.read_bytes().replace(b'"by": "ana"', b'"by": "eve"'))
    assert main(["receipt", "verify", str(changed), "--key", key, "--json"]) == 1
    told_json = json.loads(capsys.readouterr().out)
    assert not told_json["ok"]
    assert told_json["problems"]


async def test_who_came_later_is_not_shown_what_was_said_before(tmp_path: Path) -> None:
    people = PEOPLE | participants(bob=["chat"])
    async with running_gateway(tmp_path, people) as gateway:
        agent, ana, _, bob = [await gateway.join(name) for name in people]
        right = {"kind": "mcp/request", "payload": CALL}
        given = {"recipient": "bob", "capabilities": [right], "reason": "not for zoe"}
        assert await ana.refused("capability/grant", given, to=["bob"]) is None
        zoe = (await ana.ask("space/invite", {"participant_id": "zoe"}))["payload"]["token"]
        assert await agent.refused("mcp/proposal", CALL, to=["host"], id="p1") is None
        body = {"jsonrpc": "2.0", "id": 1} | CALL
        assert await bob.refused("mcp/request", body, to=["host"], about=["p1"], id="r1") is None
        assert "not for zoe" in (await ask(gateway, "p1")).text
        told = await ask(gateway, "p1", zoe)
        assert told.status_code == 200, told.text
        assert "not for zoe" not in told.text
        records = [(each["role"], "line" in each) for each in told.json()["records"]]
        assert ("grant", False) in records
        assert ("proposal", True) in records
        key = use_keys(gateway.gateway.config.data)
    origin = told.json()["records"][0]["proof"].split("\n\n")[1].split("\n")[0]
    assert verify_receipt(told.content, policy_of_key(str(key.signer(origin).verifier))).problems == []
