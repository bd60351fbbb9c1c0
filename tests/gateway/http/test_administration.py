"""What administrators see over HTTP: sessions, the rules that let people in, and who signed in when."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from moot.gateway.sign_in.sign_in_audit import read_sign_ins
from moot.protocol.operation import Json
from tests.gateway.running_gateway import LocalGateway, participants, running_gateway, space_settings
from tests.gateway.sign_in.oidc_provider import Provider, person, running_provider
from tests.gateway.sign_in.test_sign_in import enter, has_keys, refusal, signing_in
from tests.waiting import until

_LEADS = person(match={"groups": ["leads", "ops-*"]}, administrator=["lab"], profile="full")
_ROBOT = person(match={"client_id": "build"}, participant="builder", spaces=["vault"], administrator=False)


@asynccontextmanager
async def _two_spaces(folder: Path, *rules: Json) -> AsyncIterator[tuple[LocalGateway, Provider]]:
    async with running_provider() as provider:
        spaces: Any = {name: space_settings(participants(root=["*"])) for name in ("lab", "vault")}
        async with running_gateway(folder, spaces=spaces, oidc=provider.rules(*rules)) as gateway:
            await until(lambda: has_keys(gateway))
            yield gateway, provider


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_a_list_of_tokens_says_since_when_and_by_which_rule(tmp_path: Path) -> None:
    async with signing_in(tmp_path, person(match={"groups": "none"}), person()) as (gateway, provider):
        await enter(gateway, provider.token())
        await gateway.admin("POST", "participants/ana/tokens", {"seconds": 40})
        found = (await gateway.admin("GET", "tokens", participant="ana")).json()["tokens"]
        signed_in, made = sorted(found, key=lambda each: each["source"], reverse=True)
        assert (signed_in["rule"], signed_in["issuer"]) == (2, provider.issuer)
        assert signed_in["since"] <= made["since"] < made["expires"]
        assert "rule" not in made


async def test_who_signed_in_and_has_no_token_now_is_told_by_name(tmp_path: Path) -> None:
    async with signing_in(tmp_path) as (gateway, provider):
        ana = await enter(gateway, provider.token())
        listed = (await gateway.admin("GET", "tokens", participant="ana")).json()
        assert listed["absent"] == []
        assert (await gateway.admin("DELETE", f"tokens/{listed['tokens'][0]['id']}")).is_success
        await ana.closed()
        # Another token of theirs would still let them in.
        assert (await gateway.admin("GET", "tokens")).json()["absent"] == ["ana"]
        assert (await gateway.admin("GET", "tokens", participant="root")).json()["absent"] == []
        assert (await gateway.admin("POST", "participants/ana/sign-out")).is_success
        assert (await gateway.admin("GET", "tokens")).json()["absent"] == []


async def test_rules_are_told_for_one_space_in_their_order(tmp_path: Path) -> None:
    async with _two_spaces(tmp_path, _ROBOT, _LEADS, person()) as (gateway, provider):
        (told,) = (await gateway.admin("GET", "sign-in-rules", space="lab")).json()["providers"]
        assert (told["issuer"], told["all_rules"]) == (provider.issuer, 3)
        leads, everybody = told["rules"]
        assert (leads["number"], everybody["number"]) == (2, 3)
        assert leads["match"] == {"groups": ["leads", "ops-*"]}
        assert (leads["participant"], leads["profile"]) == ("{preferred_username}", "full")
        assert (leads["administrator"], everybody["administrator"]) == (True, False)
        assert "chat" in str(everybody["capabilities"])
        # Of an administrator of one space, the same; and nothing of the other.
        headers = _bearer(provider.token(groups=["leads"]))
        for where in ("sign-in-rules", "sign-ins", "tokens"):
            assert (await gateway.http.get(f"/admin/{where}?space=lab", headers=headers)).is_success
            assert (await gateway.http.get(f"/admin/{where}?space=vault", headers=headers)).status_code == 403


async def test_somebody_learns_with_their_spaces_which_of_them_they_administer(tmp_path: Path) -> None:
    leads = _LEADS | {"spaces": ["lab", "vault"]}
    async with _two_spaces(tmp_path, leads, person()) as (gateway, provider):

        async def administered(**claims: Any) -> dict[str, bool]:
            headers = _bearer(provider.token(**claims))
            spaces = (await gateway.http.get("/spaces", headers=headers)).json()["spaces"]
            return {each["name"]: each.get("administrator", False) for each in spaces}

        assert await administered(groups=["leads"]) == {"lab": True, "vault": False}
        assert await administered(sub="u-eve") == {"lab": False}


async def test_the_audit_tells_who_came_in_was_refused_and_was_signed_out(tmp_path: Path) -> None:
    async with signing_in(tmp_path, person(match={"groups": "team"})) as (gateway, provider):
        token = provider.token(groups=["team"])
        ana = await enter(gateway, token)
        assert (await refusal(gateway, provider.token("u-eve")))[0] == 403
        made = await gateway.admin("POST", "participants/ana/tokens", {"seconds": 40})
        assert (await gateway.admin("POST", "participants/ana/sign-out")).is_success
        await ana.closed()
        answer = await gateway.admin("GET", "sign-ins")
        out, minted, refused, came = answer.json()["sign_ins"]
        assert answer.json()["before"] is None
        assert [each["event"] for each in (came, refused)] == ["signed_in", "refused"]
        assert (came["participant"], came["rule"], came["client"]) == ("ana", 1, "console")
        assert (refused["account"], refused["subject"]) == ("eve", "u-eve")
        assert refused["why"].startswith("no rule of this gateway")
        assert (minted["event"], minted["participant"], minted["by"]) == ("token_made", "ana", "root")
        assert (out["event"], out["participant"], out["by"]) == ("signed_out", "ana", "root")
        assert out["at"] >= minted["at"] >= refused["at"] >= came["at"]
        shown = answer.text
        assert not [each for each in (token, made.json()["token"], "hash", "keys") if each in shown]
        # Page by page the same, by numbers and, as a cluster has it, by times.
        paged, before = [], None
        while True:
            more: dict[str, str] = {} if before is None else {"before": str(before)}
            page = (await gateway.admin("GET", "sign-ins", limit="1", **more)).json()
            paged += page["sign_ins"]
            before = page["before"]
            if before is None:
                break
        assert paged == [out, minted, refused, came]
        folder = gateway.gateway.directory.hosts["lab"].journaled.folder
        by_time, place = read_sign_ins(folder, None, 1, by_time=True)
        while place is not None:
            found, place = read_sign_ins(folder, place, 1, by_time=True)
            by_time += found
        assert by_time == paged
        only = (await gateway.admin("GET", "sign-ins", event="refused")).json()["sign_ins"]
        assert only == [refused]
        for wrong in ("before=x", "limit=0", "event=any"):
            headers = _bearer("t-root")
            assert (await gateway.http.get(f"/admin/sign-ins?{wrong}", headers=headers)).status_code == 400


async def test_who_asks_for_their_spaces_is_not_refused_in_those_of_others(tmp_path: Path) -> None:
    async with _two_spaces(tmp_path, person()) as (gateway, provider):
        headers = _bearer(provider.token())
        assert (await gateway.http.get("/spaces", headers=headers)).is_success
        vault = (await gateway.admin("GET", "sign-ins", space="vault")).json()["sign_ins"]
        assert vault == []
        assert (await refusal(gateway, provider.token(), "vault"))[0] == 403
        (refused,) = (await gateway.admin("GET", "sign-ins", space="vault")).json()["sign_ins"]
        assert refused["why"] == "this account may not enter this space"
