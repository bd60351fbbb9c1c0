"""The key file: who may read it, what must not be lost, and what is refused."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.errors import KeyFileError
from moot.xprotocol.identity import keyfile
from moot.xprotocol.identity.keys import Identity, OpeningKey, RetiredKey, SigningKey
from tests.waiting import HANG_SECONDS

IDENTITY = Identity(SigningKey(bytes(range(32))), OpeningKey(bytes(range(50, 82))))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys" / "adapter.key"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def rewrite(path: Path, change: Any) -> None:
    content = json.loads(path.read_bytes())
    path.write_text(json.dumps(change(content) or content))


@pytest.mark.requirement("XP-6.1-1")
def test_what_is_written_is_read_again(path: Path) -> None:
    keyfile.create(path, IDENTITY)
    assert keyfile.load(path) == IDENTITY
    assert keyfile.load(path).key == IDENTITY.key


def test_the_file_is_a_jwk_set_of_rfc_8037(path: Path) -> None:
    keyfile.create(path, IDENTITY)
    content = json.loads(path.read_bytes())
    signing, sealing = content["keys"]
    assert content.keys() == {"keys"}
    assert (signing["kty"], signing["crv"], signing["use"]) == ("OKP", "Ed25519", "sig")
    assert (sealing["kty"], sealing["crv"], sealing["use"]) == ("OKP", "X25519", "enc")
    assert (signing["kid"], sealing["kid"]) == (IDENTITY.key.text, IDENTITY.enc_key.text)
    assert "ed25519:" + signing["x"] == IDENTITY.key.text
    assert "x25519:" + sealing["x"] == IDENTITY.enc_key.text
    assert len(signing["d"]) == len(sealing["d"]) == 43


def test_new_folders_are_for_the_owner_alone(path: Path) -> None:
    target = path.parent / "deeper" / "key"
    before = os.umask(0)
    try:
        keyfile.create(target, IDENTITY)
    finally:
        os.umask(before)
    assert mode(target) == 0o600
    assert [mode(folder) for folder in (target.parent, target.parent.parent)] == [0o700, 0o700]
    assert keyfile.load(target) == IDENTITY


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o277, 0o777])
def test_the_file_has_one_mode_whatever_the_umask(path: Path, umask: int) -> None:
    path.parent.mkdir(0o700)
    before = os.umask(umask)
    try:
        keyfile.create(path, IDENTITY)
        keyfile.rotate(path, 1)
    finally:
        os.umask(before)
    assert mode(path) == 0o600


def test_a_key_file_is_never_overwritten(path: Path) -> None:
    keyfile.create(path, IDENTITY)
    before = path.read_bytes()
    with pytest.raises(KeyFileError, match=r"exists already.*--force"):
        keyfile.create(path, Identity.generate())
    assert path.read_bytes() == before


def test_force_replaces_it_whole_and_with_the_right_mode(path: Path) -> None:
    keyfile.create(path, IDENTITY)
    path.chmod(0o644)
    inode = path.stat().st_ino
    other = Identity.generate()
    keyfile.create(path, other, force=True)
    assert keyfile.load(path) == other
    assert mode(path) == 0o600
    assert path.stat().st_ino != inode
    assert os.listdir(path.parent) == [path.name]


def test_whatever_is_in_the_way_is_not_followed_or_destroyed(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir(0o700)
    target = tmp_path / "victim"
    target.write_text("precious")
    path.symlink_to(target)
    with pytest.raises(KeyFileError, match="exists already"):
        keyfile.create(path, IDENTITY)
    keyfile.create(path, IDENTITY, force=True)
    assert target.read_text() == "precious"
    assert not path.is_symlink()
    # A link that leads nowhere is in the way, too: following it would write where somebody else wanted.
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(KeyFileError, match="exists already"):
        keyfile.create(path, IDENTITY)
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(KeyFileError, match="symbolic link"):
        keyfile.load(path)
    with pytest.raises(KeyFileError, match="symbolic link"):
        keyfile.load_or_create(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(KeyFileError):
        keyfile.create(path, IDENTITY, force=True)
    assert os.listdir(path.parent) == [path.name]


def test_a_file_that_others_may_use_is_refused(path: Path) -> None:
    keyfile.create(path, IDENTITY)
    for bit in (0o040, 0o020, 0o010, 0o004, 0o002, 0o001):
        path.chmod(0o600 | bit)
        with pytest.raises(KeyFileError, match="chmod 600"):
            keyfile.load(path)
        with pytest.raises(KeyFileError, match="chmod 600"):
            keyfile.rotate(path, 1)
    path.chmod(0o400)
    assert keyfile.load(path) == IDENTITY


def test_a_folder_that_others_may_write_into_is_refused(path: Path) -> None:
    keyfile.create(path, IDENTITY)
    for bit in (0o020, 0o002):
        path.parent.chmod(0o700 | bit)
        for act in (
            lambda: keyfile.load(path),
            lambda: keyfile.rotate(path, 1),
            lambda: keyfile.create(path.with_name("other"), IDENTITY),
        ):
            with pytest.raises(KeyFileError, match="run `chmod go-w "):
                act()
    path.parent.chmod(0o1777)
    assert keyfile.load(path) == IDENTITY


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can give files away")
def test_a_file_or_folder_of_another_user_is_refused(path: Path) -> None:
    keyfile.create(path, IDENTITY)
    os.chown(path, 4711, -1)
    with pytest.raises(KeyFileError, match="uid 4711"):
        keyfile.load(path)
    os.chown(path, os.geteuid(), -1)
    os.chown(path.parent, 4711, -1)
    with pytest.raises(KeyFileError, match="another user"):
        keyfile.load(path)


def test_a_missing_file_is_told_with_what_to_do(path: Path) -> None:
    with pytest.raises(KeyFileError, match="keygen --output"):
        keyfile.load(path)
    with pytest.raises(KeyFileError, match="keygen --output"):
        keyfile.rotate(path, 1)


def test_pipes_folders_and_huge_files_are_no_key_files(path: Path) -> None:
    path.parent.mkdir(0o700)
    os.mkfifo(path, 0o600)
    with pytest.raises(KeyFileError, match="not a file"):
        keyfile.load(path)
    path.unlink()
    path.mkdir(0o700)
    with pytest.raises(KeyFileError):
        keyfile.load(path)
    path.rmdir()
    keyfile.create(path, IDENTITY)
    path.write_bytes(path.read_bytes() + b" " * keyfile.MAX_FILE_BYTES)
    with pytest.raises(KeyFileError, match="larger than"):
        keyfile.load(path)


def drop(name: str, place: int) -> Any:
    def change(content: Any) -> None:
        del content["keys"][place][name]

    return change


def put(name: str, value: Any, place: int) -> Any:
    def change(content: Any) -> None:
        content["keys"][place][name] = value

    return change


def swapped(content: Any) -> None:
    one, other = content["keys"]
    one["x"], other["x"] = other["x"], one["x"]


def same_secret(content: Any) -> None:
    secret = content["keys"][0]["d"]
    content["keys"][1] |= {"d": secret, "x": OpeningKey(IDENTITY.signing.secret()).public.text[7:]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content["keys"].pop(), "one Ed25519 key"),
        (lambda content: content["keys"].clear(), "one Ed25519 key"),
        (lambda content: content["keys"].append(content["keys"][0]), "one Ed25519 key"),
        (lambda content: content["keys"].append(content["keys"][1]), "one Ed25519 key"),
        (lambda content: content["keys"].append({"kty": "RSA"}), "one Ed25519 key"),
        (lambda content: content["keys"].append("text"), "no JWK Set"),
        (lambda content: {"keys": None}, "no JWK Set"),
        (lambda content: [content], "no JWK Set"),
        (drop("d", 0), "no d"),
        (drop("d", 1), "no d"),
        (drop("x", 0), "does not belong"),
        (drop("kty", 0), "kty OKP"),
        (put("kty", "EC", 1), "kty OKP"),
        (put("use", "enc", 0), "use sig"),
        (put("use", "sig", 1), "use enc"),
        (put("d", "AAAA", 0), "not 32 bytes"),
        (put("d", "A" * 42 + "B", 1), "not 32 bytes"),
        (put("d", "!" * 43, 1), "not 32 bytes"),
        (put("d", "\ud800" * 43, 1), "not 32 bytes"),
        (put("x", "A" * 43, 0), "does not belong"),
        (put("retired_at", 5, 1), "one Ed25519 key"),
        (swapped, "does not belong"),
        (same_secret, "independently"),
    ],
)
def test_a_damaged_file_is_refused_with_a_reason_and_no_secret(path: Path, change: Any, words: str) -> None:
    keyfile.create(path, IDENTITY)
    secrets = [key["d"] for key in json.loads(path.read_bytes())["keys"]]
    rewrite(path, lambda content: _changed(content, change))
    with pytest.raises(KeyFileError, match=words) as refused:
        keyfile.load(path)
    output = "".join(traceback.format_exception(refused.value))
    assert not any(secret in output for secret in secrets)


def _changed(content: Any, change: Any) -> Any:
    outcome = change(content)
    return outcome if isinstance(outcome, list) or outcome == {"keys": None} else content


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000, b"null", b'{"keys":[],"keys":[]}'])
def test_a_file_that_is_no_json_or_has_a_member_twice_is_refused(path: Path, text: bytes) -> None:
    keyfile.create(path, IDENTITY)
    path.write_bytes(text[: keyfile.MAX_FILE_BYTES])
    with pytest.raises(KeyFileError, match="no JWK Set"):
        keyfile.load(path)


def test_a_new_x25519_key_takes_over_and_older_ones_only_open(path: Path) -> None:
    keyfile.create(path, IDENTITY)
    keyfile.rotate(path, 1_000)
    twice = keyfile.rotate(path, 2_000)
    assert keyfile.load(path) == twice
    assert twice.key == IDENTITY.key
    assert len({IDENTITY.enc_key, *(old.opening.public for old in twice.retired), twice.enc_key}) == 3
    assert [old.retired_at for old in twice.retired] == [2_000, 1_000]
    assert twice.opening_key(IDENTITY.enc_key.text) == IDENTITY.opening
    assert mode(path) == 0o600
    assert os.listdir(path.parent) == [path.name]


def test_the_oldest_of_too_many_keys_go(path: Path) -> None:
    retired = tuple(
        RetiredKey(OpeningKey(bytes([n] * 32)), 100 - n) for n in range(1, keyfile.MAX_RETIRED_KEYS + 1)
    )
    full = Identity(IDENTITY.signing, IDENTITY.opening, retired)
    keyfile.create(path, full)
    assert keyfile.load(path) == full
    rotated = keyfile.rotate(path, 101)
    assert rotated.retired[1:] == retired[:-1]
    assert rotated.opening_key(retired[-1].opening.public.text) is None
    rewrite(path, lambda content: content["keys"].append(content["keys"][-1]))
    with pytest.raises(KeyFileError, match="more than 16"):
        keyfile.load(path)


@pytest.mark.parametrize("moment", ["5", 1.5, True, -1, None])
def test_the_time_of_retirement_is_a_whole_number(path: Path, moment: Any) -> None:
    keyfile.create(path, IDENTITY)
    keyfile.rotate(path, 5)
    rewrite(path, put("retired_at", moment, 2))
    with pytest.raises(KeyFileError, match="retired_at"):
        keyfile.load(path)


_ROTATE = """
import sys
from pathlib import Path
from moot.xprotocol.identity import keyfile
for n in range(4):
    keyfile.rotate(Path(sys.argv[1]), n)
"""


def test_processes_that_rotate_at_once_lose_no_key(path: Path) -> None:
    keyfile.create(path, IDENTITY)
    running = [subprocess.Popen([sys.executable, "-c", _ROTATE, str(path)]) for _ in range(3)]  # noqa: S603
    assert [process.wait(HANG_SECONDS) for process in running] == [0, 0, 0]
    assert len(keyfile.load(path).retired) == 12
    assert keyfile.load(path).opening_key(IDENTITY.enc_key.text) is not None


_START = """
import sys
from pathlib import Path
from moot.xprotocol.identity import keyfile
print(keyfile.load_or_create(Path(sys.argv[1])).key)
"""


def test_processes_that_start_at_once_agree_on_one_key(path: Path) -> None:
    running = [
        subprocess.Popen([sys.executable, "-c", _START, str(path)], stdout=subprocess.PIPE, text=True)  # noqa: S603
        for _ in range(3)
    ]
    answer = [process.communicate(timeout=HANG_SECONDS)[0].strip() for process in running]
    assert answer == [keyfile.load(path).key.text] * 3


def test_a_new_key_file_has_its_name_only_when_it_is_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever starts meanwhile finds no file or the whole one."""
    written: list[bool] = []
    sync = os.fsync

    def look(handle: int) -> None:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            written.append(path.exists())
        sync(handle)

    monkeypatch.setattr(os, "fsync", look)
    keyfile.create(path, IDENTITY)
    assert written == [False]
    assert keyfile.load(path) == IDENTITY


def test_the_first_start_makes_a_key_and_the_next_ones_keep_it(path: Path) -> None:
    made = keyfile.load_or_create(path)
    assert keyfile.load_or_create(path) == made


_NO_ROOM = """
import resource, sys
from pathlib import Path
from moot.errors import KeyFileError
from moot.xprotocol.identity import keyfile
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
path = Path(sys.argv[1])
for act in (
    lambda: keyfile.rotate(path, 1),
    lambda: keyfile.create(path, keyfile.Identity.generate(), force=True),
    lambda: keyfile.create(path.with_name("other"), keyfile.Identity.generate()),
):
    try:
        act()
    except KeyFileError as fault:
        print(fault)
"""


def test_without_room_on_the_disk_nothing_is_lost_and_nothing_left_behind(path: Path) -> None:
    keyfile.create(path, IDENTITY)
    ran = subprocess.run(  # noqa: S603
        [sys.executable, "-c", _NO_ROOM, str(path)], capture_output=True, text=True, timeout=HANG_SECONDS
    )
    assert ran.stdout.count("File too large") == 3
    assert os.listdir(path.parent) == [path.name]
    assert keyfile.load(path) == IDENTITY


@given(st.lists(st.binary(min_size=32, max_size=32), min_size=2, max_size=6, unique=True))
def test_every_identity_survives_its_file(
    tmp_path_factory: pytest.TempPathFactory, seeds: list[bytes]
) -> None:
    signing, opening, *older = seeds
    retired = tuple(RetiredKey(OpeningKey(seed), n) for n, seed in enumerate(older))
    identity = Identity(SigningKey(signing), OpeningKey(opening), retired)
    path = tmp_path_factory.mktemp("keys") / "key"
    keyfile.create(path, identity)
    assert keyfile.load(path) == identity
