"""Notifications by ntfy, Slack and e-mail: what these read, and nothing that a proposer could make of it."""

from __future__ import annotations

import asyncio
import html
import re
import ssl
from pathlib import Path

import pytest

from moot.protocol.operation import Json
from tests.authority import Authority
from tests.gateway.notifications.receivers import Receiver, notifications, private_file, receiver, webhook
from tests.gateway.notifications.test_notifications import scanned, until_metric
from tests.gateway.running_gateway import (
    Client,
    gateway_settings,
    participants,
    running_gateway,
    space_settings,
    write_config,
)
from tests.gateway.served import served
from tests.gateway.smtp import mail_server
from tests.ports import held_port
from tests.waiting import HANG_SECONDS, until

PEOPLE = participants(maria=["*"], agent=["mcp/proposal", "mcp/withdraw"])
PUBLIC = "https://moot.example.org"
# What a proposer would write to be more than text.
HOSTILE = (
    "*pay* <!channel> <https://evil.example|Approve> [ok](https://evil.example) @here _x_ `y`\r\n"
    "Bcc: all@evil.example\r\n\r\nhttps://evil.example/\u202egnp.exe www.evil.example"
)
HOSTILE_ID = "p>|<!channel> x/../?#"


async def propose(client: Client, id: str, tool: str = "write_file", **arguments: Json) -> None:
    call = {"method": "tools/call", "params": {"name": tool, "arguments": arguments or {"path": "a"}}}
    assert await client.refused("mcp/proposal", call, id=id, to=["maria"]) is None


def ntfy(folder: Path, server: Receiver, **more: Json) -> dict[str, Json]:
    url = f"http://127.0.0.1:{server.port}/moot_maria-7f"
    return {
        "participant": "maria",
        "type": "ntfy",
        "url_file": private_file(folder, "ntfy.url", url),
        "after_seconds": 0,
    } | more


def slack(folder: Path, server: Receiver, **more: Json) -> dict[str, Json]:
    settings = webhook(folder, server.url, "slack", type="slack", **more)
    del settings["secret_file"]
    return settings


def email(**more: Json) -> dict[str, Json]:
    return {
        "participant": "maria",
        "type": "email",
        "address": "maria@example.net",
        "after_seconds": 0,
    } | more


def smtp(port: int, **more: Json) -> dict[str, Json]:
    sender = "Moot <moot@example.org>"
    return {"host": "127.0.0.1", "port": port, "from": sender, "starttls": False} | more


def has_no_link(text: str) -> None:
    assert "://evil" not in text
    assert "www.evil" not in text
    assert not re.search(r"evil\.", text)
    assert "\u202e" not in text
    assert "\r" not in text


# ntfy


async def test_ntfy_is_posted_json_at_its_root_with_the_token(tmp_path: Path) -> None:
    async with receiver(status=200) as server:
        token = private_file(tmp_path, "ntfy.token", "tk_s3cr3t")
        settings = notifications(phone=ntfy(tmp_path, server, token_file=token))
        async with running_gateway(tmp_path, PEOPLE, notifications=settings, public_url=PUBLIC) as gateway:
            await propose(await gateway.join("agent"), "p1")
            (request,) = await server.has(1)
            assert request.path == "/"
            assert request.headers["authorization"] == "Bearer tk_s3cr3t"
            answer = request.json
            assert answer.keys() == {"topic", "title", "message", "click"}
            assert answer["topic"] == "moot_maria-7f"
            assert answer["title"] == "agent proposes write_file on maria (lab)"
            assert answer["click"] == f"{PUBLIC}/#/lab/approvals/p1"
            assert "tk_s3cr3t" not in request.body.decode()


async def test_ntfy_is_told_a_hostile_text_as_text_and_no_more_than_it_takes(tmp_path: Path) -> None:
    async with receiver(status=200) as server:
        settings = notifications(
            phone=ntfy(tmp_path, server, include_arguments=True, max_argument_chars=100_000)
        )
        async with running_gateway(tmp_path, PEOPLE, notifications=settings, public_url=PUBLIC) as gateway:
            agent = await gateway.join("agent")
            await propose(agent, HOSTILE_ID, HOSTILE, text="é" * 50_000)
            (request,) = await server.has(1)
            answer = request.json
            assert "\n" not in answer["title"]
            has_no_link(answer["title"])
            has_no_link(answer["message"])
            assert len(answer["message"].encode()) <= 4_096
            assert answer["click"] == f"{PUBLIC}/#/lab/approvals/p%3E%7C%3C%21channel%3E%20x%2F..%2F%3F%23"


# Slack


async def test_slack_is_told_a_hostile_text_in_blocks_of_plain_text(tmp_path: Path) -> None:
    async with receiver(status=200) as server:
        settings = notifications(chat=slack(tmp_path, server, include_arguments=True))
        async with running_gateway(tmp_path, PEOPLE, notifications=settings, public_url=PUBLIC) as gateway:
            await propose(await gateway.join("agent"), HOSTILE_ID, HOSTILE, text=HOSTILE)
            (request,) = await server.has(1)
            answer = request.json
            plain, link = answer["blocks"]
            assert plain["text"]["type"] == "plain_text"
            assert plain["text"]["text"].startswith(
                "agent proposes *pay* <!channel> <https[:]//evil[.]example"
            )
            has_no_link(plain["text"]["text"])
            assert re.fullmatch(
                r"<https://moot\.example\.org/#/lab/approvals/[A-Za-z0-9%._~-]+\|Open the proposal>",
                link["text"]["text"],
            )
            # What phones show, and programs that only take after Slack: one link, and it is ours.
            text = answer["text"]
            has_no_link(text)
            assert re.findall(r"<([^>]*)>", text) == [link["text"]["text"][1:-1]]
            rest = re.sub(r"<[^>]*>", "", text)
            assert not re.search(r"[*~`<>&|@]|\]\(|(?<!\w)_|_(?!\w)", rest)
            assert html.unescape(rest) == rest
            assert (answer["parse"], answer["link_names"], answer["unfurl_links"]) == ("none", False, False)


async def test_slack_is_told_of_many_at_once_with_a_link_to_the_list(tmp_path: Path) -> None:
    async with receiver(status=200) as server:
        settings = notifications(chat=slack(tmp_path, server, after_seconds=30))
        async with running_gateway(tmp_path, PEOPLE, notifications=settings, public_url=PUBLIC) as gateway:
            host = gateway.gateway.directory.hosts["lab"]
            start = host.journaled.clock()
            host.journaled.clock = lambda: start
            agent = await gateway.join("agent")
            for number in range(12):
                await propose(agent, f"p{number}", HOSTILE)
            host.journaled.clock = lambda: start + 30
            (request,) = await server.has(1)
            answer = request.json
            assert (
                answer["text"] == f"12 proposals pending for maria <{PUBLIC}/#/lab/approvals|Open the list>"
            )
            assert answer["blocks"][0]["text"]["text"].endswith("\nand 2 more")
            assert len(answer["blocks"][0]["text"]["text"]) <= 3_000


# E-mail


async def test_a_mail_has_one_link_and_no_header_that_a_proposer_chose(tmp_path: Path) -> None:
    async with mail_server() as mailbox:
        settings = notifications(mail=email(include_arguments=True))
        options: Json = {"notifications": settings, "public_url": PUBLIC, "smtp": smtp(mailbox.port)}
        async with running_gateway(tmp_path, PEOPLE, **options) as gateway:
            await propose(await gateway.join("agent"), HOSTILE_ID, HOSTILE, text=HOSTILE)
            await asyncio.wait_for(mailbox.arrived.wait(), HANG_SECONDS)
            await until_metric(gateway, "sent", 1)
        (mail,) = mailbox.messages
        assert mailbox.recipients == [["maria@example.net"]]
        assert mailbox.senders == ["moot@example.org"]
        assert mail["bcc"] is None
        assert mail["auto-submitted"] == "auto-generated"
        assert re.fullmatch(r"<msg_[0-9a-f]{32}@example\.org>", mail["message-id"])
        has_no_link(mail["subject"])
        assert mail["subject"].startswith("agent proposes ")
        text = mail.get_content().replace("\r\n", "\n")
        has_no_link(text)
        assert re.findall(r"https?://\S+", text) == [
            f"{PUBLIC}/#/lab/approvals/p%3E%7C%3C%21channel%3E%20x%2F..%2F%3F%23"
        ]
        assert mail.get_content_type() == "text/plain"
        assert b"t-maria" not in mailbox.received


async def test_a_mail_server_that_is_down_is_tried_again(tmp_path: Path) -> None:
    with held_port() as port:
        settings = notifications(mail=email())
        async with running_gateway(tmp_path, PEOPLE, notifications=settings, smtp=smtp(port)) as gateway:
            await propose(await gateway.join("agent"), "p1")
            await until_metric(gateway, "unreachable", 2)


async def test_a_mail_server_that_says_nothing_holds_up_neither_others_nor_the_stop(tmp_path: Path) -> None:
    async with receiver(hangs=True) as silent, receiver() as good:
        settings = notifications(mail=email(), good=webhook(tmp_path, good.url, "good"))
        options: Json = {"notifications": settings, "smtp": smtp(silent.port, timeout_seconds=3_000)}
        file = write_config(tmp_path, gateway_settings({"lab": space_settings(PEOPLE)}, **options))
        async with served(file) as gateway:
            await propose(await gateway.join("agent"), "p1")
            await good.has(1)
            await until(lambda: silent.connections == 1)
            code, _ = await gateway.end()
        assert code == 0


async def test_mail_goes_only_to_a_server_whose_certificate_is_trusted(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "private")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*authority.issue("mail"))
    async with mail_server(tls) as mailbox:
        settings = notifications(mail=email())
        options: Json = {"notifications": settings, "smtp": smtp(mailbox.port, starttls=True)}
        file = write_config(tmp_path, gateway_settings({"lab": space_settings(PEOPLE)}, **options))
        async with served(file) as gateway:
            await propose(await gateway.join("agent"), "p1")
            await until_metric(gateway, "unreachable", 2)
            assert mailbox.messages == []
        async with served(file, environ={"SSL_CERT_FILE": str(authority.file)}):
            await until(lambda: len(mailbox.messages) == 1)


# Quiet hours


async def test_what_comes_in_quiet_hours_is_one_message_afterwards(tmp_path: Path) -> None:
    async with receiver() as phone:
        quiet: Json = {"from": "22:00", "to": "07:00", "time_zone": "Europe/Berlin"}
        settings = notifications(phone=webhook(tmp_path, phone.url, quiet_hours=quiet))
        async with running_gateway(tmp_path, PEOPLE, notifications=settings) as gateway:
            assert gateway.gateway.notifier is not None
            (sender,) = gateway.gateway.notifier.senders
            # 23:30 in Berlin, in winter.
            night = 1_768_516_200.0
            sender.clock = lambda: night
            agent = await gateway.join("agent")
            for id in ("p1", "p2", "withdrawn"):
                await propose(agent, id)
            assert await agent.refused("mcp/withdraw", about=["withdrawn"]) is None
            await scanned(gateway)
            assert phone.requests == []
            host = gateway.gateway.directory.hosts["lab"]
            later = host.journaled.clock() + 7.5 * 3600
            host.journaled.clock = lambda: later
            sender.clock = lambda: night + 7.5 * 3600
            (request,) = await phone.has(1)
            await scanned(gateway)
            assert len(phone.requests) == 1
            assert request.json["type"] == "summary"
            assert [each["proposal_id"] for each in request.json["proposals"]] == ["p1", "p2"]


@pytest.mark.parametrize("kind", ["ntfy", "slack"])
async def test_every_receiver_is_tried_again_after_an_error(tmp_path: Path, kind: str) -> None:
    async with receiver(status=500) as server:
        made = ntfy(tmp_path, server) if kind == "ntfy" else slack(tmp_path, server)
        async with running_gateway(tmp_path, PEOPLE, notifications=notifications(phone=made)) as gateway:
            await propose(await gateway.join("agent"), "p1")
            await server.has(2)
            server.status = 200
            await until_metric(gateway, "sent", 1)
