"""Invitations by e-mail (MEW 3.6.5): one mail with the way in, and the token nowhere else."""

from __future__ import annotations

import asyncio
import re
import socket
from pathlib import Path

import pytest

from moot.protocol.operation import Json
from tests.gateway.disk import everything_under
from tests.gateway.running_gateway import (
    gateway_settings,
    participants,
    running_gateway,
    space_settings,
    write_config,
)
from tests.gateway.served import served
from tests.gateway.smtp import mail_server
from tests.waiting import HANG_SECONDS, bounded, until

PEOPLE = participants(alice=["*"], bob=["chat", "space/invite"]) | {
    "scribe": {"output_log": "scribe.jsonl", "capabilities": [], "tokens": ["t-scribe"]}
}


def smtp(port: int, **more: Json) -> Json:
    return {"host": "127.0.0.1", "port": port, "from": "moot@example.org", "starttls": False} | more


@pytest.mark.requirement("MEW-3.6.5-5", "MEW-3.6.5-6", "MEW-3.6.5-10", "MEW-3.6.6-4", "MEW-3.6.6-5")
async def test_the_invitee_gets_one_mail_that_leads_in_and_nobody_else_sees_the_token(tmp_path: Path) -> None:
    async with mail_server() as mailbox:
        spaces = {"lab": space_settings(PEOPLE)}
        log: Json = {"level": "debug", "file": "gateway.log"}
        file = write_config(tmp_path, gateway_settings(spaces, smtp=smtp(mailbox.port), log=log))
        async with served(file) as gateway:
            alice, bob = await gateway.join("alice"), await gateway.join("bob")
            invite: Json = {
                "participant_id": "zoe",
                "email": "zoe@example.net",
                "reason": "she knows the code",
                "initial_capabilities": [{"kind": "chat"}],
            }
            ack = (await alice.ask("space/invite", invite))["payload"]
            assert ack["status"] == "created"
            await asyncio.wait_for(mailbox.arrived.wait(), HANG_SECONDS)
            assert (mailbox.senders, mailbox.recipients) == (["moot@example.org"], [["zoe@example.net"]])
            (mail,) = mailbox.messages
            assert mail["to"] == "zoe@example.net"
            assert "lab" in mail["subject"]
            text = mail.get_content()
            assert ack["token"] in text
            assert "alice" in text
            url = re.search(r"ws://\S+", text)
            assert url is not None
            assert url[0] == ack["connection_url"]
            # What the mail says works.
            zoe = await gateway.open(url[0].removeprefix(gateway.ws), token=ack["token"])
            assert (await zoe.hear("system/welcome"))["payload"]["you"]["id"] == "zoe"
            assert await zoe.refused("chat", {"text": "here I am"}) is None
            answer = await bob.hear("system/presence")
            assert answer["payload"]["event"] == "invited"
            assert answer["payload"]["reason"] == "she knows the code"
            await bob.hear("chat")
            polled = await gateway.poll("bob")
            seen = f"{bob.received} {zoe.received} {polled}"
            assert ack["token"] not in seen
            # The invite itself is nobody else's business, nor is the address.
            assert "example.net" not in seen
        assert len(mailbox.messages) == 1
    kept = everything_under(tmp_path)
    assert ack["token"].encode() not in kept
    assert b"t-alice" not in kept.replace((tmp_path / "moot.yaml").read_bytes(), b"")
    journal = everything_under(tmp_path / "data" / "spaces" / "lab" / "journal")
    assert b"she knows the code" in journal


async def test_an_invite_over_http_is_mailed_too_and_a_failed_one_is_not(tmp_path: Path) -> None:
    async with (
        mail_server() as mailbox,
        running_gateway(tmp_path, PEOPLE, smtp=smtp(mailbox.port)) as gateway,
    ):
        for payload, status in (
            ({"participant_id": "alice", "email": "a@example.net"}, 409),
            ({"participant_id": "bad name", "email": "b@example.net"}, 400),
            ({"participant_id": "yan", "email": "y@example.net"}, 200),
        ):
            answer = await gateway.post("alice", {"kind": "space/invite", "payload": payload})
            assert answer.status_code == status
        await asyncio.wait_for(mailbox.arrived.wait(), HANG_SECONDS)
        assert mailbox.recipients == [["y@example.net"]]
        assert answer.json()["token"] in mailbox.messages[0].get_content()


async def test_the_gateway_logs_in_where_it_has_to(tmp_path: Path) -> None:
    async with mail_server() as mailbox:
        settings = smtp(mailbox.port, user="moot", password_env="MAIL_PASSWORD")
        file = write_config(tmp_path, gateway_settings({"lab": space_settings(PEOPLE)}, smtp=settings))
        async with served(file, environ={"MAIL_PASSWORD": "pass-word"}) as gateway:
            invite = {"participant_id": "zoe", "email": "zoe@example.net"}
            answer = await gateway.post("alice", {"kind": "space/invite", "payload": invite})
            assert answer.status_code == 200
            await asyncio.wait_for(mailbox.arrived.wait(), HANG_SECONDS)
        assert mailbox.logins == ["moot pass-word"]
    assert b"pass-word" not in everything_under(tmp_path)


async def test_a_token_does_not_travel_in_the_clear_unless_that_is_allowed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`starttls` is the default; this server does not offer it."""
    async with mail_server() as mailbox:
        settings = smtp(mailbox.port)
        del settings["starttls"]
        async with running_gateway(tmp_path, PEOPLE, smtp=settings) as gateway:
            alice = await gateway.join("alice")
            ack = await alice.ask("space/invite", {"participant_id": "zoe", "email": "zoe@example.net"})
            assert ack["payload"]["status"] == "created"
            await until(lambda: "invitation not mailed" in caplog.text)
        assert mailbox.messages == []
        assert ack["payload"]["token"].encode() not in mailbox.received
        assert ack["payload"]["token"] not in caplog.text


async def test_a_mail_server_that_is_down_or_silent_holds_up_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        settings = smtp(silent.getsockname()[1], timeout_seconds=0.5)
        async with running_gateway(tmp_path, PEOPLE, smtp=settings) as gateway:
            alice = await gateway.join("alice")
            invite = {"participant_id": "zoe", "email": "zoe@example.net"}
            ack = await alice.ask("space/invite", invite)
            assert ack["payload"]["status"] == "created"
            assert await alice.refused("chat") is None
            await until(lambda: "invitation not mailed" in caplog.text)
            assert await gateway.status("/ws?space=lab", token=ack["payload"]["token"]) == 101


BAD_ADDRESSES = [
    "a@",
    "@b",
    "@",
    "a@[",
    "a@b\r\nBcc: c@d",
    "a@b, c@d",
    "a b@c",
    "<@>",
    '"@x',
    "x: y;@",
    "é@x",
    7,
    ["a@b"],
    "",
]


async def test_an_address_that_is_none_is_refused_and_nothing_happens(tmp_path: Path) -> None:
    async with (
        mail_server() as mailbox,
        running_gateway(tmp_path, PEOPLE, smtp=smtp(mailbox.port)) as gateway,
    ):
        alice, bob = await gateway.join("alice"), await gateway.join("bob")
        for address in BAD_ADDRESSES:
            invite: Json = {"participant_id": "zoe", "email": address}
            assert await alice.refused("space/invite", invite) == "invalid_request", address
        assert await bob.fence() == []
        good = await alice.ask(
            "space/invite", {"participant_id": "zoe", "email": "zoe.x+y@mail-1.example.net"}
        )
        assert good["payload"]["status"] == "created"
        await asyncio.wait_for(mailbox.arrived.wait(), HANG_SECONDS)
        assert mailbox.recipients == [["zoe.x+y@mail-1.example.net"]]


async def test_without_a_mail_server_the_inviter_still_gets_the_way_in(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, PEOPLE) as gateway:
        alice = await gateway.join("alice")
        ack = await alice.ask("space/invite", {"participant_id": "zoe", "email": "zoe@example.net"})
        client = await gateway.open(
            ack["payload"]["connection_url"].removeprefix(gateway.ws), token=ack["payload"]["token"]
        )
        assert (await client.hear("system/welcome"))["payload"]["you"]["id"] == "zoe"


@pytest.mark.usefixtures("no_refill")
async def test_who_invites_in_a_loop_mails_no_more_than_its_rate_and_gets_the_tokens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise whoever may invite could mail the whole world in the operator's name."""
    settings_of = {"max_invitations_per_minute": 2}
    async with (
        mail_server() as mailbox,
        running_gateway(tmp_path, PEOPLE, smtp=smtp(mailbox.port, **settings_of)) as gateway,
    ):

        async def invite(by: str, number: int) -> None:
            payload = {"participant_id": f"{by}-{number}", "email": f"{by}{number}@example.net"}
            answer = await gateway.post(by, {"kind": "space/invite", "payload": payload})
            assert answer.json()["token"]

        for number in range(4):
            await invite("alice", number)
        # Others have a rate of their own.
        await invite("bob", 0)
        await until(lambda: len(mailbox.recipients) == 3)
    assert sorted(to for (to,) in mailbox.recipients) == [
        "alice0@example.net",
        "alice1@example.net",
        "bob0@example.net",
    ]
    assert caplog.text.count("invitation not mailed") == 2


async def test_a_mail_server_that_hangs_keeps_nobody_from_the_history_and_from_tokens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its mails wait in a thread of their own: others are few, and files are read and written there."""
    people = participants(alice=["*"]) | {"zoe": {"capabilities": [{"kind": "chat"}]}}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = smtp(silent.getsockname()[1], max_invitations_per_minute=0, timeout_seconds=60)
        async with running_gateway(tmp_path, people, smtp=settings) as gateway:
            for number in range(110):
                payload = {"participant_id": f"p{number}", "email": f"p{number}@example.net"}
                answer = await gateway.post("alice", {"kind": "space/invite", "payload": payload})
                assert answer.status_code == 200
            # Of so many, some are not even kept.
            assert caplog.text.count("invitation not mailed") == 10
            async with bounded():
                page = await gateway.http.get(
                    "/spaces/lab/history", headers={"Authorization": "Bearer t-alice"}
                )
                assert page.status_code == 200
                assert (await gateway.admin("POST", "participants/zoe/token", {})).status_code == 200
