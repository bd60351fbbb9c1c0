"""Commands that write on a disk that is full or fails: nothing half-written, and a sentence says so."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moot.agents.hook.hook_config import write_settings
from moot.config.secrets.sign_in_store import SignInStore, StoredSignIn
from moot.errors import UsageError
from tests.gateway.fault_shim import FaultShim
from tests.gateway.running_gateway import gateway_settings, participants, space_settings, write_config
from tests.gateway.served import command, started
from tests.store.journals import envelope_record, folder_in, write

SETTINGS = json.dumps({"permissions": {"allow": ["Read"]}})
CLIENT_FILE = json.dumps({"mcpServers": {"notes": {"command": "notes", "env": {"NOTES_KEY": "k-1"}}}})


def files_in(folder: Path) -> dict[str, str]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_text("utf-8") for path in found}


CASES = {
    "a template's configuration": (("init", "filesystem", "."), "moot.yaml", errno.ENOSPC),
    "what git ignores": (("init", "filesystem", "."), ".gitignore", errno.EIO),
    "secrets of a client's server": (("init", "--from", "../mcp.json", "."), "notes.env", errno.ENOSPC),
    "an imported configuration": (("init", "--from", "../mcp.json", "."), "moot.yaml", errno.EIO),
    "an export": (("journal", "export", "--data", "../data", "out.jsonl"), "out.jsonl", errno.EIO),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_command_leaves_nothing_half_written(tmp_path: Path, case: str) -> None:
    arguments, target, fault = CASES[case]
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / ".gitignore").write_text("mine/\n", "utf-8")
    (tmp_path / "mcp.json").write_text(CLIENT_FILE, "utf-8")
    await write(folder_in(tmp_path / "data"), [envelope_record("e-1")])
    before = files_in(folder)
    shim = FaultShim(tmp_path)
    shim.aim(target)
    # Some of it is taken, then nothing more.
    shim.set(write_room=7, write_fault=fault)
    code, said = await command(*arguments, cwd=folder, environ=shim.environ)
    assert shim.get("writes_failed") > 0
    assert code != 0
    assert "Traceback" not in said
    assert os.strerror(fault) in said, said
    assert target in said or "cannot be written" in said, said
    left = files_in(folder)
    # What is ignored by git may have been added to, as a whole.
    assert left.pop(".gitignore") in (before.pop(".gitignore"), "mine/\n.moot/\n*.token\n__pycache__/\n")
    left.pop(".moot/secrets/.gitignore", None)
    assert left == before


@contextmanager
def no_room() -> Iterator[None]:
    """No file of this process grows beyond a few bytes meanwhile (EFBIG): as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (7, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_settings_of_a_coding_agent_stay_as_they_were(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(SETTINGS, "utf-8")
    with no_room(), pytest.raises(UsageError, match="is as it was: File too large"):
        write_settings(file, "claude-code", ["moot", "hook", "claude-code", "--space", "x"])
    assert files_in(tmp_path) == {"settings.json": SETTINGS}


def test_a_sign_in_that_cannot_be_kept_leaves_the_earlier_ones(tmp_path: Path) -> None:
    store = SignInStore(tmp_path / "sign-ins")
    sign_in = StoredSignIn(
        issuer="i", client_id="c", token_endpoint="https://i.example/token", access_token="a", expires_at=9.0
    )
    with store.lock():
        store.save("ws://one", sign_in)
        with no_room(), pytest.raises(UsageError, match="cannot be written: File too large"):
            store.save("ws://two", sign_in)
        assert (store.load("ws://one"), store.load("ws://two")) == (sign_in, None)
    assert sorted(path.name for path in store.folder.iterdir()) == [".sign-ins.json.lock", "sign-ins.json"]


async def test_whoever_takes_rights_away_from_a_shell_while_the_disk_fails_is_told(tmp_path: Path) -> None:
    people = participants(alice=["*"], bob=["chat"], carol=["chat"])
    file = write_config(tmp_path, gateway_settings({"lab": space_settings(people)}))
    shim = FaultShim(tmp_path)
    gateway = await started(file, environ=shim.environ)
    token = tmp_path / "alice.token"
    token.write_text("t-alice")
    token.chmod(0o600)
    ways = ("--gateway", gateway.url, "--token-file", str(token))
    shim.set(sync_fault=errno.EIO)
    code, said = await command("member", "kick", "bob", *ways, cwd=tmp_path)
    assert code == 0
    assert "in effect, but not on disk: a restart before the gateway's disk recovers would undo it" in said
    code, said = await command("member", "kick", "carol", "--json", *ways, cwd=tmp_path)
    assert (code, json.loads(said.splitlines()[-1])["on_disk"]) == (0, False)
    await gateway.close()
    assert (await gateway.end(signal.SIGTERM))[0] == 1


@pytest.mark.parametrize("target", ["alice.token", "moot.sqlite", "journal"])
@pytest.mark.parametrize("start", [("up", "--plain"), ("serve", "moot.yaml")])
async def test_a_gateway_says_at_its_start_that_the_disk_is_full(
    tmp_path: Path, target: str, start: tuple[str, ...]
) -> None:
    """And not that permissions are wrong, or that a file should be moved away."""
    (tmp_path / "moot.yaml").write_text(
        "gateway: {port: 0}\nspaces: {lab: {participants: {alice: {capabilities: [chat]}}}}"
    )
    shim = FaultShim(tmp_path)
    shim.aim(target)
    shim.set(write_room=0, write_fault=errno.ENOSPC)
    code, said = await command(*start, cwd=tmp_path, environ=shim.environ)
    assert (code, "Traceback" in said) == (2, False), said
    assert "is full: free some room and start again, or name a folder on another disk with --data" in said
    assert "permission" not in said
