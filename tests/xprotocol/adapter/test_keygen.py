"""`xprotocol-adapter keygen`: a key is made once, for its owner alone (XP 6.2)."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from moot.xprotocol.identity import keyfile
from tests.xprotocol.adapter.command_runner import Shell, run_program


@pytest.mark.requirement("XP-6.2-1", "XP-A-1")
def test_keygen_writes_a_file_that_only_its_owner_reads_and_prints_the_public_keys(
    shell: Shell, tmp_path: Path
) -> None:
    file = tmp_path / "keys" / "adapter.key"
    output = shell("keygen", "--output", file)
    assert output.code == 0
    identity = keyfile.load(file)
    assert identity.key.text in output.out
    assert identity.enc_key.text in output.out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


@pytest.mark.requirement("XP-6.2-1")
def test_a_key_is_never_overwritten_by_accident(shell: Shell, tmp_path: Path) -> None:
    """D-75."""
    file = tmp_path / "adapter.key"
    first = shell("keygen", "--output", file, "--json").json
    output = shell("keygen", "--output", file)
    assert output.code == 1
    assert "is not overwritten" in output.err
    assert keyfile.load(file).key.text == first["public_key"]
    second = shell("keygen", "--output", file, "--force", "--json").json
    assert second["public_key"] != first["public_key"]
    assert keyfile.load(file).key.text == second["public_key"]


def test_no_secret_is_printed_anywhere(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "adapter.key"
    output = shell("keygen", "--output", file)
    secrets = [line.split('"')[3] for line in file.read_text().splitlines() if '"d"' in line]
    assert len(secrets) == 2
    assert not any(secret in output.out + output.err for secret in secrets)


@pytest.mark.requirement("XP-A-1")
def test_without_a_path_the_key_goes_where_the_adapter_looks_for_it(tmp_path: Path) -> None:
    """The first command of XP 9, as it is installed."""
    output = run_program("keygen", "--json", env={"HOME": str(tmp_path)}, cwd=tmp_path)
    assert output.code == 0
    file = tmp_path / ".xprotocol" / "adapter.key"
    assert output.json == {
        "ok": True,
        "file": str(file),
        "public_key": keyfile.load(file).key.text,
        "encryption_key": keyfile.load(file).enc_key.text,
    }
    again = run_program("keygen", "--json", env={"HOME": str(tmp_path)}, cwd=tmp_path)
    assert again.code == 1
    assert again.json["ok"] is False


def test_a_rotation_gives_a_new_encryption_key_and_keeps_who_it_is(shell: Shell, tmp_path: Path) -> None:
    """docs/topics/xprotocol.md: what was encrypted before can still be opened."""
    file = tmp_path / "adapter.key"
    first = shell("keygen", "--output", file, "--json").json
    sealed_before = keyfile.load(file)
    second = shell("keygen", "--output", file, "--rotate", "--json").json
    assert second["public_key"] == first["public_key"]
    assert second["encryption_key"] != first["encryption_key"]
    assert second["older_encryption_keys"] == 1
    loaded = keyfile.load(file)
    assert [older.opening.public.text for older in loaded.retired] == [sealed_before.enc_key.text]
    assert "after a restart" in shell("keygen", "--output", file, "--rotate").out
    missing = shell("keygen", "--output", tmp_path / "none.key", "--rotate")
    assert missing.code == 1
    assert shell("keygen", "--output", file, "--rotate", "--force").code == 2
