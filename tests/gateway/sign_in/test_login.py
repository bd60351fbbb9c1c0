"""`moot login` and `moot logout`, against a provider that others wrote, and where sign-ins are kept."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urljoin

import httpx
import msgspec
import pytest

from moot.cli import main
from moot.cli.client import device_sign_in
from moot.cli.client.device_sign_in import current_token
from moot.config.secrets.sign_in_store import SignInStore, StoredSignIn, open_sign_ins
from moot.errors import Unauthorized, UsageError
from moot.protocol.operation import Json
from tests.gateway.running_gateway import participants, running_gateway
from tests.gateway.sign_in.foreign_provider import AUDIENCE, foreign_provider
from tests.gateway.sign_in.test_sign_in import has_keys
from tests.ports import held_port
from tests.waiting import HANG_SECONDS, bounded, until

_FORM = re.compile(r'<form[^>]*action="([^"]*)"[^>]*>(.*?)</form>', re.DOTALL)
_INPUT = re.compile(r"<input([^>]*)>")


async def confirm_in_browser(address: str, who: str) -> None:
    """What a person does at the provider: fill in one form after the other."""
    async with httpx.AsyncClient(follow_redirects=True, timeout=HANG_SECONDS) as browser:
        page = await browser.get(address)
        for _ in range(6):
            found = _FORM.search(page.text)
            if found is None:
                return
            fields = {}
            for attributes in _INPUT.findall(found[2]):
                named = re.search(r'name="([^"]+)"', attributes)
                value = re.search(r'value="([^"]*)"', attributes)
                if named is not None:
                    fields[named[1]] = value[1] if value is not None else ""
            fields |= {name: who for name in ("login", "password") if name in fields}
            page = await browser.post(urljoin(str(page.url), found[1].replace("&amp;", "&")), data=fields)


async def test_a_person_signs_in_by_device_says_something_and_signs_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "provider").mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("MOOT_SIGN_INS", "file")
    monkeypatch.setattr(device_sign_in, "pause", lambda _seconds: time.sleep(0.05))
    with held_port() as nobody:
        await _sign_in_and_out(tmp_path, nobody, monkeypatch, capsys)


async def _sign_in_and_out(
    tmp_path: Path, nobody: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with foreign_provider(tmp_path / "provider") as issuer:
        rule: Json = {"match": {"groups": "staff"}, "participant": "{preferred_username}"}
        rule |= {"capabilities": ["chat"], "spaces": ["lab"]}
        oidc: Json = {"issuer": issuer, "audience": AUDIENCE, "people": [rule], "client_id": "cli"}
        oidc |= {"resource": AUDIENCE, "scopes": ["openid", "offline_access"]}
        async with running_gateway(tmp_path, participants(root=["*"]), oidc=oidc) as gateway:
            await until(lambda: has_keys(gateway))
            root = await gateway.join("root")
            shown: list[str] = []
            monkeypatch.setattr("moot.cli.client.browser.has_display", lambda: True)
            monkeypatch.setattr("moot.cli.client.browser.open_browser", shown.append)
            # The first gateway of this cluster is gone: the sign-in is for both, and is used with either.
            both = f"http://127.0.0.1:{nobody},{gateway.url}"
            signing_in = asyncio.create_task(asyncio.to_thread(main, ["login", both]))
            await until(lambda: bool(shown))
            await confirm_in_browser(shown[0], "ana")
            async with bounded():
                assert await signing_in == 0
            out = capsys.readouterr().out
            assert f"Signing in at {issuer} for {both}" in out
            file = tmp_path / "config" / "moot" / "sign-ins.json"
            assert file.stat().st_mode & 0o777 == 0o600
            say = ["send", "hello", "--gateway", gateway.url, "--space", "lab"]
            assert await asyncio.to_thread(main, say) == 0
            assert (await root.hear("chat"))["from"] == "ana"
            # When the token has ended, another is fetched, and kept.
            store = open_sign_ins({"XDG_CONFIG_HOME": str(tmp_path / "config"), "MOOT_SIGN_INS": "file"})
            first = store.load(both)
            assert first is not None
            store.save(both, msgspec.structs.replace(first, expires_at=0.0))
            assert await asyncio.to_thread(main, say) == 0
            second = store.load(both)
            assert second is not None
            assert second.access_token != first.access_token
            assert second.refresh_token != first.refresh_token
            assert first.access_token not in capsys.readouterr().out
            assert await asyncio.to_thread(main, ["logout", gateway.url]) == 0
            assert store.load(both) is None
            capsys.readouterr()
            assert await asyncio.to_thread(main, say) == 2
            assert f"`moot login {gateway.url}`" in capsys.readouterr().err


def kept(**more: Any) -> StoredSignIn:
    values: dict[str, Any] = {
        "issuer": "https://id",
        "client_id": "c",
        "token_endpoint": "http://127.0.0.1:1/t",
    }
    values |= {"access_token": "a", "expires_at": time.time() + 600, "refresh_token": "r"}
    return StoredSignIn(**(values | more))


def test_sign_ins_are_kept_for_their_owner_alone_and_shown_to_nobody(tmp_path: Path) -> None:
    store = SignInStore(tmp_path / "moot")
    with store.lock():
        store.save("https://a", kept())
        store.save("https://b", kept(access_token="b"))
        store.save("https://a", None)
    assert store.load("https://a") is None
    assert current_token(store, "https://b") == "b"
    assert "refresh" not in repr(kept())
    file = tmp_path / "moot" / "sign-ins.json"
    file.chmod(0o644)
    with pytest.raises(UsageError, match="others may read"):
        store.load("https://b")


def test_a_sign_in_for_several_gateways_is_used_with_these_and_no_other(tmp_path: Path) -> None:
    store = SignInStore(tmp_path / "moot")
    with store.lock():
        store.save("https://a,https://b", kept())
    for known in ("https://a", "https://b", "https://b,https://a"):
        assert current_token(store, known) == "a"
    for other in ("https://c", "https://a,https://c"):
        assert current_token(store, other) is None


def test_a_keyring_is_used_where_there_is_one(tmp_path: Path) -> None:
    held: dict[tuple[str, str], str] = {}
    keyring = SimpleNamespace(
        get_password=lambda service, user: held.get((service, user)),
        set_password=lambda service, user, text: held.__setitem__((service, user), text),
    )
    store = SignInStore(tmp_path / "moot", keyring=keyring)
    with store.lock():
        store.save("https://a", kept())
    assert current_token(store, "https://a") == "a"
    assert not (tmp_path / "moot" / "sign-ins.json").exists()


def test_an_ended_sign_in_that_cannot_be_renewed_says_what_to_do(tmp_path: Path) -> None:
    store = SignInStore(tmp_path / "moot")
    with store.lock():
        store.save("https://a", kept(expires_at=0.0, refresh_token=None))
    with pytest.raises(Unauthorized, match="run `moot login https://a`"):
        current_token(store, "https://a")


def test_nobody_signs_in_where_a_token_would_be_overheard(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["login", "http://moot.example.org"]) != 0
    assert "https://" in capsys.readouterr().err
