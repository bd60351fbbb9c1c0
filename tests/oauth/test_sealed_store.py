"""Credentials of bridges on disk: encrypted where a key is kept elsewhere, private in any case."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moot.config.secrets.sign_in_key import SignInKey, find_sign_in_key
from moot.errors import UsageError
from moot.oauth.credential_store import (
    CannotOpen,
    CredentialStore,
    StoredClient,
    StoredCredential,
    open_file,
    seal_file,
)

KEY, OTHER = SignInKey(b"k" * 32, "a file"), SignInKey(b"o" * 32, "a file")
GIVEN = StoredCredential(server="s", owner="ana", access_token="secret-a", refresh_token="secret-r")
CLIENT = StoredClient(issuer="https://id.example", client_id="c", client_secret="secret-c")


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def test_with_a_key_nothing_on_disk_can_be_read_and_everything_can_be_used(tmp_path: Path) -> None:
    store = CredentialStore(tmp_path / "kept", KEY)
    store.keep_credential(GIVEN)
    store.keep_client("s", CLIENT)
    for each in files(tmp_path / "kept"):
        assert each.stat().st_mode & 0o777 == 0o600
        for word in (b"secret", b"ana", b"id.example"):
            assert word not in each.read_bytes()
    again = CredentialStore(tmp_path / "kept", KEY)
    assert again.credential("s", "ana") == GIVEN
    assert again.client("s", CLIENT.issuer) == CLIENT
    assert again.place == "encrypted, with a key in a file"
    assert "kkk" not in repr(KEY)


def test_another_key_or_a_changed_file_opens_nothing_and_its_owner_signs_in_again(tmp_path: Path) -> None:
    CredentialStore(tmp_path, KEY).keep_credential(GIVEN)
    assert CredentialStore(tmp_path, OTHER).credential("s", "ana") is None
    (file,) = files(tmp_path)
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert CredentialStore(tmp_path, KEY).credential("s", "ana") is None


def test_a_file_cannot_be_put_in_the_place_of_another(tmp_path: Path) -> None:
    sealed = seal_file(KEY.key, b"x", "credential-1.json")
    assert open_file(KEY.key, sealed, "credential-1.json") == b"x"
    with pytest.raises(CannotOpen):
        open_file(KEY.key, sealed, "credential-2.json")
    assert seal_file(KEY.key, b"x", "credential-1.json") != sealed


def test_without_the_key_that_there_was_the_store_says_so(tmp_path: Path) -> None:
    CredentialStore(tmp_path, KEY).keep_credential(GIVEN)
    with pytest.raises(UsageError, match="MOOT_SIGN_INS_KEY_FILE"):
        CredentialStore(tmp_path).credential("s", "ana")


def test_what_was_kept_before_there_was_a_key_is_encrypted_when_it_is_read(tmp_path: Path) -> None:
    plain = CredentialStore(tmp_path)
    assert plain.place == "in a private file, not encrypted"
    plain.keep_credential(GIVEN)
    (file,) = files(tmp_path)
    assert b"secret" in file.read_bytes()
    assert CredentialStore(tmp_path, KEY).credential("s", "ana") == GIVEN
    assert b"secret" not in file.read_bytes()


# Where the key is


def keyring(**broken: Any) -> Any:
    held: dict[tuple[str, str], str] = {}
    whole = {
        "get_password": lambda service, user: held.get((service, user)),
        "set_password": lambda service, user, text: held.__setitem__((service, user), text),
    }
    return SimpleNamespace(**(whole | broken))


def test_a_keyring_is_given_a_key_once() -> None:
    ring = keyring()
    first = find_sign_in_key({}, keyring=ring)
    assert first is not None
    assert (len(first.key), first.place) == (32, "the system's keyring")
    assert find_sign_in_key({}, keyring=ring) == first
    assert find_sign_in_key({}, keyring=keyring()) != first
    assert find_sign_in_key({"MOOT_SIGN_INS": "file"}, keyring=ring) is None


def test_a_keyring_that_is_locked_is_no_reason_to_write_in_the_clear() -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("locked")

    for broken in ({"get_password": fail}, {"set_password": fail}, {"set_password": lambda *_: None}):
        with pytest.raises(UsageError, match="MOOT_SIGN_INS=file"):
            find_sign_in_key({}, keyring=keyring(**broken))


def test_a_key_file_has_to_be_private_and_long(tmp_path: Path) -> None:
    file = tmp_path / "key"
    environ = {"MOOT_SIGN_INS_KEY_FILE": str(file)}
    with pytest.raises(UsageError, match="cannot be read"):
        find_sign_in_key(environ)
    file.write_text("short\n")
    file.chmod(0o600)
    with pytest.raises(UsageError, match="fewer than 32"):
        find_sign_in_key(environ)
    file.write_text("a1" * 32)
    found = find_sign_in_key(environ, keyring=keyring())
    assert found is not None
    assert (len(found.key), found.place) == (32, "a file")
    file.chmod(0o644)
    with pytest.raises(UsageError, match="others may read"):
        find_sign_in_key(environ)
