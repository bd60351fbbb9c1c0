"""The card of a published member: signed, with the arguments of tools, for 1.0 and 0.3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client.card_resolver import A2ACardResolver, parse_agent_card
from a2a.types import AgentCard, GetExtendedAgentCardRequest
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from google.protobuf.json_format import MessageToDict
from jwt import PyJWK, PyJWKSet
from jwt.utils import base64url_decode

from moot.agents.a2a.a2a_settings import JoinSettings, ServeSettings
from moot.agents.a2a.agent_card import WELL_KNOWN, find_card
from moot.agents.a2a.card_signer import KEYS_PATH, card_signer
from moot.agents.a2a.published_card import ARGUMENTS_URI, make_card
from moot.errors import UsageError
from tests.agents.a2a.served_space import ServedSpace, served_space, service, space_with_coder
from tests.waiting import HANG_SECONDS

NEW = {"A2A-Version": "1.0"}


async def get(url: str, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=HANG_SECONDS) as http:
        return await http.get(url, headers=headers)


async def verify(card: AgentCard) -> None:
    """As a caller with the official SDK does: by the key that the signature names."""
    fetched: dict[str, PyJWKSet] = {}
    for each in card.signatures:
        protected = json.loads(base64url_decode(each.protected))
        assert protected["alg"] == "ES256"
        assert protected["typ"] == "JOSE"
        fetched[protected["jku"]] = PyJWKSet.from_dict((await get(protected["jku"])).json())

    def key_of(kid: str | None, jku: str | None) -> PyJWK:
        return fetched[jku or ""][kid or ""]

    create_signature_verifier(key_of, ["ES256"])(card)


async def read_card(served: ServedSpace, **headers: str) -> AgentCard:
    async with httpx.AsyncClient(timeout=HANG_SECONDS, headers=headers) as http:
        return await A2ACardResolver(http, f"{served.url}/coder").get_agent_card()


async def test_cards_are_signed_and_the_official_sdk_verifies_them(tmp_path: Path) -> None:
    """A2A 8.4. The public card as 1.0 and as 0.3 callers get it, and the one for callers with a token."""
    async with served_space(tmp_path) as served:
        client = await served.client()
        for card in (
            await read_card(served),
            await read_card(served, **NEW),
            await client.get_extended_agent_card(GetExtendedAgentCardRequest()),
        ):
            await verify(card)
            card.skills[0].description = "Something else."
            with pytest.raises(InvalidSignaturesError):
                await verify(card)
        # Nothing of the private half is given away.
        assert set((await get(served.url + KEYS_PATH)).json()["keys"][0]) == {
            "kty", "crv", "x", "y", "kid", "use", "alg",
        }  # fmt: skip


async def test_the_key_that_signs_cards_outlives_a_restart_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    async with space_with_coder(tmp_path) as served:
        keys = []
        for _ in range(2):
            async with service(served):
                keys.append((await get(served.url + KEYS_PATH)).json())
        assert keys[0] == keys[1]
        file = tmp_path / "state" / "card-key.pem"
        assert file.stat().st_mode & 0o077 == 0
        file.chmod(0o644)
        with pytest.raises(UsageError, match="chmod 600"):
            card_signer(tmp_path / "state", served.url)
        file.chmod(0o600)
        file.write_text("no key")
        with pytest.raises(UsageError, match="no private key"):
            card_signer(tmp_path / "state", served.url)


async def test_a_published_card_is_checked_by_moot_a2a_join(tmp_path: Path) -> None:
    """By its server's own key, and by one that was pinned; a key of somebody else refuses it."""
    async with served_space(tmp_path) as served:
        pinned, other = tmp_path / "pinned.jwks", tmp_path / "other.jwks"
        pinned.write_bytes((await get(served.url + KEYS_PATH)).content)
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        other.write_text(json.dumps(card_signer(tmp_path / "elsewhere", served.url).key_set))

        async def checked(**more: Any) -> str:
            settings = JoinSettings(url=f"{served.url}/coder", gateway="", state_folder=tmp_path, **more)
            return (await find_card(settings)).signature

        assert await checked() == "signed, and checked with a key of its own server"
        assert "a key that was given here" in await checked(card_keys=pinned, require_signature=True)
        with pytest.raises(UsageError, match="signature of the agent card is wrong"):
            await checked(card_keys=other)


async def test_the_arguments_of_tools_are_on_the_card(tmp_path: Path) -> None:
    """In an extension: a skill of A2A has no place for them."""
    async with served_space(tmp_path) as served:
        card = await read_card(served, **NEW)
        (extension,) = card.capabilities.extensions
        assert (extension.uri, extension.required) == (ARGUMENTS_URI, False)
        schemas = MessageToDict(extension.params)["inputSchemas"]
        assert set(schemas) == {"read", "write"} == {each.id for each in card.skills} - {"chat"}
        assert schemas["write"]["properties"]["lines"]["type"] == "integer"
        assert schemas["write"]["required"] == ["name", "lines"]


def tool(name: str, schema: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": schema}


def test_a_schema_that_a_card_cannot_hold_is_left_out_and_the_skill_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(100):
        deep = {"type": "object", "properties": {"a": deep}}
    tools = [
        tool("good", {"type": "object", "description": "a\u200bb"}),
        tool("deep", deep),
        tool("exact", {"type": "object", "properties": {"a": {"maximum": 2**60 + 1}}}),
        tool("none", None),
        tool("large", {"type": "object", "description": "x" * 70_000}),
    ]
    settings = ServeSettings(gateway="", members=("m",), public_url="https://x", state_folder=tmp_path)
    card = make_card("m", "lab", settings, tools)
    schemas = MessageToDict(card.capabilities.extensions[0].params)["inputSchemas"]
    assert list(schemas) == ["good"]
    assert "\u200b" not in schemas["good"]["description"]
    assert len(card.skills) == 6
    monkeypatch.setattr("moot.agents.a2a.published_card.MAX_SCHEMAS_BYTES", 10)
    small = ServeSettings(gateway="", members=("m",), public_url="https://x", state_folder=tmp_path)
    assert not make_card("m", "lab", small, tools).capabilities.extensions


async def test_a_card_is_plain_1_0_for_who_says_so_and_is_not_sent_twice(tmp_path: Path) -> None:
    """Without a version a request is one of 0.3 (A2A 3.6.2), which has other fields in the same object."""
    async with served_space(tmp_path) as served:
        url = f"{served.url}/coder{WELL_KNOWN}"
        new, old = await get(url, **NEW), await get(url)
        assert set(new.json()["securitySchemes"]["bearer"]) == {"httpAuthSecurityScheme"}
        assert "url" not in new.json()
        assert old.json()["url"] == f"{served.url}/coder/"
        assert old.json()["securitySchemes"]["bearer"]["type"] == "http"
        assert (await get(f"{url}?A2A-Version=1.0")).content == new.content
        assert new.headers["vary"] == "A2A-Version"
        assert "max-age=" in new.headers["cache-control"]
        assert "GMT" in new.headers["last-modified"]
        again = await get(url, **NEW, **{"If-None-Match": f'"x", W/{new.headers["etag"]}'})
        assert (again.status_code, again.content) == (304, b"")
        assert (await get(url, **{"If-None-Match": new.headers["etag"]})).status_code == 200


async def test_cards_name_the_public_address(tmp_path: Path) -> None:
    """Behind a proxy it is not where the service listens; it may have a path."""
    public = "https://agents.example.com/lab"
    async with served_space(tmp_path, public_url=public) as served:
        fields = (await get(f"{served.url}/coder{WELL_KNOWN}", **NEW)).json()
        assert [each["url"] for each in fields["supportedInterfaces"]] == [
            f"{public}/coder/", f"{public}/coder/rest", f"{public}/coder/",
        ]  # fmt: skip
        assert served.url not in json.dumps(fields)
        card = parse_agent_card(fields)
        protected = json.loads(base64url_decode(card.signatures[0].protected))
        assert protected["jku"] == f"{public}{KEYS_PATH}"
