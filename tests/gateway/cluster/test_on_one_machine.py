"""`moot up --cluster`, and a folder that was in a cluster, alone, and in the cluster again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from moot.errors import UsageError
from tests.gateway.cluster.conftest import PEOPLE, StartGateway
from tests.gateway.running_gateway import running_gateway
from tests.up.moot_up import is_running, moot_up, run_moot, write_config
from tests.waiting import until, until_told


async def test_what_a_gateway_did_alone_is_not_forgotten_in_the_cluster(
    start: StartGateway, tmp_path: Path
) -> None:
    """The cluster's log would give bob back what was taken from him."""
    async with start("a") as a:
        await (await a.join("bob")).leave()
    async with running_gateway(tmp_path / "a", PEOPLE) as alone:
        gone = await alone.admin(
            "POST", "participants/bob/capabilities", {"remove": [{"kind": "*"}]}, space="lab"
        )
        assert gone.status_code == 200, gone.text
    with pytest.raises(UsageError, match="with another past: move that folder away"):
        async with start("a"):
            raise AssertionError("started")


async def test_up_runs_a_cluster_on_one_machine(tmp_path: Path) -> None:
    write_config(tmp_path, "spaces: {lab: {participants: {ana: {capabilities: ['*']}}}}\n")
    async with moot_up(tmp_path, "--cluster", "2") as up:
        second = await up.wait_for_state("gateway-2", "running")
        url = up.log("gateway-2").rpartition("listening on ")[2].split()[0]
        assert second["message"] == url
        ana = ("--gateway", url, "--token-file", str(up.data / "tokens" / "ana.token"))
        assert await run_moot(tmp_path, "send", "hello", *ana) == (0, "")
        os.kill(second["pid"], signal.SIGKILL)
        await up.wait_for_state("gateway-2", "running", restarts=1)
        await until(lambda: up.log("gateway-2").count("listening on") == 2)

        async def status() -> str:
            """Nothing while something is wrong, as it may be for a moment on a busy machine."""
            code, told = await run_moot(tmp_path, "cluster", "status")
            return told if code == 0 else ""

        assert "gateway-1  serving" in await until_told(status)
        pids = [part["pid"] for part in up.now.values() if part["pid"] is not None]
        assert len(pids) == 4
        assert await up.end() == 0
    assert not any(map(is_running, pids))
    assert "hello" in (up.data / "spaces" / "lab" / "journal" / "000000000001.jsonl").read_text()
    code, refused = await run_moot(tmp_path, "up", "--cluster", "9")
    assert code == 2
    assert "from 2 to 5 gateways" in refused
