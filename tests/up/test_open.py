"""`moot up` and `moot open` give a link that signs the person of the folder in, once."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import httpx

from tests.up.moot_up import MOOT, environment, moot_up, run_moot
from tests.waiting import HANG_SECONDS, bounded, until

SPACE = """\
space: {name: lab, default_participant: ann}
participants:
  ann: {capabilities: ["*"]}
  bob: {capabilities: [chat]}
"""
PUBLIC = """\
gateway: {public_url: https://moot.example.org}
spaces:
  lab:
    default_participant: ann
    participants: {ann: {capabilities: ["*"]}}
"""
EVERYWHERE = "0.0.0.0"  # noqa: S104
LINK = re.compile(r"(http://\S+/)#sign-in=([\w-]+)")


async def redeem(page: str, code: str) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False, timeout=HANG_SECONDS) as client:
        return await client.post(f"{page}sign-in-links/redeem", json={"code": code})


async def test_moot_open_prints_a_link_that_signs_in_once(tmp_path: Path) -> None:
    (tmp_path / "moot.yaml").write_text(SPACE, "utf-8")
    async with moot_up(tmp_path) as up:
        code, output = await run_moot(tmp_path, "open", "--print", "--qr")
        assert code == 0, output
        found = LINK.search(output)
        assert found is not None
        assert "within 10 minutes" in output
        # Blocks of a QR code.
        assert "█" in output
        assert up.token("ann") not in output
        assert (await redeem(*found.groups())).json() == {"token": up.token("ann")}
        assert (await redeem(*found.groups())).status_code == 403
        code, output = await run_moot(tmp_path, "open", "--print", "--as", "bob")
        found = LINK.search(output)
        assert found is not None
        assert (await redeem(*found.groups())).json() == {"token": up.token("bob")}


async def test_moot_open_without_a_gateway_says_so(tmp_path: Path, port: int) -> None:
    (tmp_path / "moot.yaml").write_text(SPACE, "utf-8")
    async with moot_up(tmp_path):
        pass
    # Where nobody listens: the default port may be somebody's.
    (tmp_path / "moot.yaml").write_text(
        PUBLIC.replace("public_url: https://moot.example.org", f"port: {port}"), "utf-8"
    )
    code, output = await run_moot(tmp_path, "open", "--print")
    assert code == 5
    assert "Traceback" not in output
    assert "connection refused. No gateway runs there: start one with `moot up`" in output


async def test_moot_up_says_where_to_sign_in(tmp_path: Path) -> None:
    (tmp_path / "moot.yaml").write_text(SPACE, "utf-8")
    process = await asyncio.create_subprocess_exec(
        *MOOT, "up", "--port", "0", "--plain",
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, cwd=tmp_path, env=environment(),
    )  # fmt: skip
    lines: list[str] = []

    async def read() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            lines.append(line.decode())

    reader = asyncio.create_task(read())
    try:
        line = await until(lambda: next((line for line in lines if "#sign-in=" in line), ""))
        assert "as ann" in line
        found = LINK.search(line)
        assert found is not None
        token = (tmp_path / ".moot/tokens/ann.token").read_text("ascii").strip()
        assert (await redeem(*found.groups())).json() == {"token": token}
    finally:
        process.terminate()
        async with bounded():
            await process.wait()
            await reader


async def test_an_invitation_has_a_link_for_a_browser_on_another_machine(tmp_path: Path) -> None:
    """Of the public address, whatever address the command itself uses."""
    (tmp_path / "moot.yaml").write_text(PUBLIC, "utf-8")
    async with moot_up(tmp_path) as up:
        code, output = await run_moot(tmp_path, "member", "invite", "ana", "chat", "mcp/request", "--link")
        assert code == 0, output
        found = re.search(r"a link for ana: (https://moot\.example\.org/)#sign-in=([\w-]+)\n", output)
        assert found is not None, output
        assert "within 10 minutes" in output
        assert "only a browser on this machine" not in output
        assert "█" in output
        redeemed = (await redeem(f"{up.url}/", found[2])).json()
        assert f"token (shown only once): {redeemed['token']}\n" in output


async def test_a_link_that_only_this_machine_can_open_says_so(tmp_path: Path) -> None:
    (tmp_path / "moot.yaml").write_text(SPACE, "utf-8")
    async with moot_up(tmp_path, "--host", EVERYWHERE) as up:
        code, output = await run_moot(
            tmp_path, "member", "invite", "ana", "--link", "--token-out", "ana.token"
        )
        assert code == 0, output
        assert EVERYWHERE not in output
        assert LINK.search(output) is not None
        assert (
            "note: only a browser on this machine can open this link. For other machines set gateway."
            in output
        )
        code, output = await run_moot(tmp_path, "open", "--qr", "--print")
        assert "note: only a browser on this machine" in output
        assert up.url.startswith("http://127.0.0.1:")
