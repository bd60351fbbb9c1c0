"""Notifications out of the gateway: who is told of which proposal, once, whatever becomes of receivers."""

from __future__ import annotations

import email.utils
import re
import signal
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from moot.protocol.operation import Json
from tests.authority import Authority
from tests.gateway.disk import everything_under
from tests.gateway.notifications.receivers import Receiver, notifications, receiver, webhook
from tests.gateway.running_gateway import (
    Client,
    GatewayUnderTest,
    LocalGateway,
    gateway_settings,
    participants,
    running_gateway,
    space_settings,
    write_config,
)
from tests.gateway.served import command, served
from tests.ports import held_port
from tests.waiting import until, until_told

PEOPLE = participants(
    maria=["*"],
    ana=["mcp/request", "mcp/reject", "moot/approve"],
    agent=["mcp/proposal", "mcp/withdraw", "chat"],
    files=["mcp/response", "chat"],
)
CALL: Json = {"method": "tools/call", "params": {"name": "write_file", "arguments": {"path": "a"}}}
PUBLIC = "https://moot.example.org"


async def test_a_signed_webhook_says_what_waits_and_where_to_decide_it(tmp_path: Path) -> None:
    async with receiver() as phone:
        settings = notifications(phone=webhook(tmp_path, phone.url))
        async with running_gateway(
            tmp_path, PEOPLE, notifications=settings, public_url=PUBLIC + "/"
        ) as gateway:
            agent, _ = await gateway.join("agent"), await gateway.join("files")
            assert await agent.refused("mcp/proposal", CALL, id="p 1/2", to=["files"]) is None
            (request,) = await phone.has(1)
            request.verify()
            assert request.path == "/in/s3cr3t-path"
            assert request.headers["content-type"] == "application/json"
            answer = request.json
            assert answer["type"] == "proposal.pending"
            assert answer["title"] == "agent proposes write_file on files (lab)"
            assert answer["link"] == f"{PUBLIC}/#/lab/approvals/p%201%2F2"
            assert answer["participant"] == "maria"
            (entry,) = answer["proposals"]
            assert entry["proposal_id"] == "p 1/2"
            assert (entry["proposer"], entry["to"], entry["name"]) == ("agent", ["files"], "write_file")
            assert "arguments" not in entry
            assert "t-maria" not in request.body.decode()


async def test_who_is_told_is_who_may_decide_it(tmp_path: Path) -> None:
    """Not its proposer, not who rejected it, not who lacks the right, and nobody in another space."""
    people = participants(
        maria=[
            {"kind": "mcp/request", "payload": {"params": {"name": "read_*"}}},
            "mcp/reject",
            "mcp/proposal",
        ],
        agent=["mcp/proposal"],
        boss=["*"],
    )
    async with receiver() as mine, receiver() as bosses:
        settings = notifications(
            mine=webhook(tmp_path, mine.url, "mine", spaces=["lab"]),
            bosses=webhook(tmp_path, bosses.url, "bosses", participant="boss", max_messages_per_minute=100),
        )
        spaces = {"lab": space_settings(people), "other": space_settings(people)}
        async with running_gateway(tmp_path, spaces=spaces, notifications=settings) as gateway:
            agent, maria = await gateway.join("agent"), await gateway.join("maria")
            elsewhere = await gateway.join("agent", space="other")
            boss = await gateway.join("boss")
            await propose(agent, "not-hers", "write_file")
            await propose(maria, "her-own", "read_file")
            await propose(elsewhere, "elsewhere", "read_file")
            await propose(agent, "hers", "read_file")
            await until(lambda: len(told_by(bosses)) == 4)
            await mine.has(1)
            assert told_by(mine) == ["hers"]
            assert sorted(told_by(bosses)) == ["elsewhere", "her-own", "hers", "not-hers"]
            # A right that comes later counts from then on.
            grant: Json = {"recipient": "maria", "capabilities": [{"kind": "mcp/request"}]}
            assert await boss.refused("capability/grant", grant) is None
            await mine.has(2)
            assert told_by(mine) == ["hers", "not-hers"]


async def test_what_she_rejected_and_what_is_decided_in_time_is_not_told(tmp_path: Path) -> None:
    async with receiver() as phone:
        settings = notifications(phone=webhook(tmp_path, phone.url, after_seconds=30))
        async with running_gateway(tmp_path, PEOPLE, notifications=settings) as gateway:
            host = gateway.gateway.directory.hosts["lab"]
            start = host.journaled.clock()
            host.journaled.clock = lambda: start
            agent, maria, _ = (
                await gateway.join("agent"),
                await gateway.join("maria"),
                await gateway.join("files"),
            )
            for id in ("approved", "rejected", "withdrawn", "left"):
                await propose(agent, id)
            assert await maria.refused("mcp/reject", about=["rejected"]) is None
            assert await maria.refused("mcp/request", CALL, to=["files"], about=["approved"]) is None
            assert await agent.refused("mcp/withdraw", about=["withdrawn"]) is None
            host.journaled.clock = lambda: start + 29.9
            await scanned(gateway)
            assert phone.requests == []
            host.journaled.clock = lambda: start + 30
            await phone.has(1)
            await scanned(gateway)
            assert told_by(phone) == ["left"]


async def test_a_quorum_asks_who_can_still_approve_and_then_who_can_carry_it_out(tmp_path: Path) -> None:
    people = participants(
        maria=["moot/approve"], ana=["moot/approve"], boss=["mcp/request"], agent=["mcp/proposal"]
    )
    rules = {"quorum": [{"payload": {"method": "tools/call"}, "approvals_needed": 2}]}
    async with receiver() as hers, receiver() as anas, receiver() as bosses:
        settings = notifications(
            hers=webhook(tmp_path, hers.url, "hers"),
            anas=webhook(tmp_path, anas.url, "anas", participant="ana", after_seconds=30),
            bosses=webhook(tmp_path, bosses.url, "bosses", participant="boss"),
        )
        async with running_gateway(tmp_path, people, rules=rules, notifications=settings) as gateway:
            host = gateway.gateway.directory.hosts["lab"]
            agent, ana = await gateway.join("agent"), await gateway.join("ana")
            await propose(agent, "p1", to=())
            (request,) = await hers.has(1)
            assert request.json["proposals"][0]["approvals_needed"] == 2
            assert "Approvals: 0 of 2" in request.json["text"]
            await scanned(gateway)
            assert bosses.requests == []
            assert await ana.refused("moot/approve", about=["p1"]) is None
            later = host.journaled.clock() + 31
            host.journaled.clock = lambda: later
            await scanned(gateway)
            assert anas.requests == bosses.requests == []
            maria = await gateway.join("maria")
            assert await maria.refused("moot/approve", about=["p1"]) is None
            await bosses.has(1)


async def test_an_outcome_that_became_unknown_is_told_where_that_is_switched_on(tmp_path: Path) -> None:
    async with receiver() as phone, receiver() as other:
        settings = notifications(
            phone=webhook(tmp_path, phone.url, outcome_unknown=True),
            other=webhook(tmp_path, other.url, "other"),
        )
        async with running_gateway(tmp_path, PEOPLE, notifications=settings, public_url=PUBLIC) as gateway:
            agent, maria, files = (
                await gateway.join("agent"),
                await gateway.join("maria"),
                await gateway.join("files"),
            )
            await propose(agent, "p1")
            await phone.has(1)
            await other.has(1)
            assert await maria.refused("mcp/request", CALL, to=["files"], about=["p1"]) is None
            await files.leave()
            _, request = await phone.has(2)
            answer = request.json
            assert answer["type"] == "outcome.unknown"
            assert "Nobody knows whether write_file on files was done" in answer["text"]
            assert answer["proposals"][0]["reason"] == "host_left"
            await scanned(gateway)
            assert len(other.requests) == 1


async def test_a_restart_that_makes_an_outcome_unknown_is_told_and_a_space_without_a_journal_too(
    tmp_path: Path,
) -> None:
    async with receiver() as phone:
        settings = notifications(phone=webhook(tmp_path, phone.url, outcome_unknown=True))
        options: Json = {"notifications": settings, "journal": "off"}
        file = write_config(tmp_path, gateway_settings({"lab": space_settings(PEOPLE)}, **options))
        async with served(file) as gateway:
            agent, maria, _ = (
                await gateway.join("agent"),
                await gateway.join("maria"),
                await gateway.join("files"),
            )
            await propose(agent, "p1")
            await phone.has(1)
            assert await maria.refused("mcp/request", CALL, to=["files"], about=["p1"]) is None
        async with served(file):
            await phone.has(2)
        assert [request.json["type"] for request in phone.requests] == ["proposal.pending", "outcome.unknown"]


# Bursts


async def test_a_burst_is_one_summary_and_the_rate_holds(tmp_path: Path) -> None:
    async with receiver() as phone:
        settings = notifications(
            phone=webhook(
                tmp_path, phone.url, after_seconds=30, max_separate_messages=2, max_messages_per_minute=2
            )
        ) | {"max_summary_entries": 3}
        async with running_gateway(tmp_path, PEOPLE, notifications=settings, public_url=PUBLIC) as gateway:
            host = gateway.gateway.directory.hosts["lab"]
            start = host.journaled.clock()
            host.journaled.clock = lambda: start
            agent = await gateway.join("agent")
            for number in range(20):
                await propose(agent, f"p{number:02}")
            host.journaled.clock = lambda: start + 31
            (request,) = await phone.has(1)
            request.verify()
            answer = request.json
            assert (answer["type"], answer["count"], len(answer["proposals"])) == ("summary", 20, 3)
            assert answer["title"] == "20 proposals pending for maria"
            assert answer["text"].endswith("\nand 17 more")
            assert answer["link"] == f"{PUBLIC}/#/lab/approvals"
            # One more message is within the rate, the next is not.
            await propose(agent, "one")
            host.journaled.clock = lambda: start + 62
            await phone.has(2)
            await propose(agent, "two")
            host.journaled.clock = lambda: start + 93
            await scanned(gateway)
            assert len(phone.requests) == 2


async def test_more_than_are_held_at_once_are_told_all_the_same(tmp_path: Path) -> None:
    async with receiver() as phone:
        settings = notifications(
            phone=webhook(
                tmp_path, phone.url, after_seconds=30, max_separate_messages=1, max_messages_per_minute=99
            )
        ) | {"max_queued": 4, "max_summary_entries": 99}
        async with running_gateway(tmp_path, PEOPLE, notifications=settings) as gateway:
            host = gateway.gateway.directory.hosts["lab"]
            start = host.journaled.clock()
            host.journaled.clock = lambda: start
            agent = await gateway.join("agent")
            ids = [f"p{number}" for number in range(10)]
            for id in ids:
                await propose(agent, id)
            host.journaled.clock = lambda: start + 30
            await phone.has(3)
            assert [request.json["count"] for request in phone.requests] == [4, 4, 2]
            assert told_by(phone) == ids


# Receivers that do not take it


async def test_a_receiver_that_is_down_is_told_when_it_is_back_and_others_meanwhile(tmp_path: Path) -> None:
    async with receiver() as good, held() as port:
        settings = notifications(
            dead=webhook(tmp_path, f"http://127.0.0.1:{port}/in", "dead"),
            good=webhook(tmp_path, good.url, "good"),
        )
        async with running_gateway(tmp_path, PEOPLE, notifications=settings) as gateway:
            agent, maria, _ = (
                await gateway.join("agent"),
                await gateway.join("maria"),
                await gateway.join("files"),
            )
            await propose(agent, "p1")
            await propose(agent, "p2")
            await good.has(2)
            await until_metric(gateway, "unreachable", 3)
            # What is decided while it is down is not told any more.
            assert await maria.refused("mcp/request", CALL, to=["files"], about=["p1"]) is None
            async with receiver(port=port) as back:
                await back.has(1)
                await scanned(gateway)
                assert told_by(back) == ["p2"]
            assert len(good.requests) == 2


@pytest.mark.parametrize("status", [500, 302, 404, 429])
async def test_an_error_is_tried_again_with_the_same_delivery_id_and_redirects_lead_nowhere(
    tmp_path: Path, status: int
) -> None:
    async with receiver() as elsewhere, receiver(status=status) as phone:
        phone.headers["Location"] = elsewhere.url
        settings = notifications(phone=webhook(tmp_path, phone.url))
        async with running_gateway(tmp_path, PEOPLE, notifications=settings) as gateway:
            agent = await gateway.join("agent")
            await propose(agent, "p1")
            await phone.has(3)
            phone.status = 200
            await until_metric(gateway, "sent", 1)
            for request in phone.requests:
                request.verify()
            assert len({request.headers["webhook-id"] for request in phone.requests}) == 1
            assert len({request.body for request in phone.requests}) == 1
            count = len(phone.requests)
            await scanned(gateway)
            assert len(phone.requests) == count
            assert elsewhere.requests == []


@pytest.mark.parametrize("when", ["3000", "date"])
async def test_retry_after_is_heeded(tmp_path: Path, when: str) -> None:
    asked = email.utils.formatdate(time.time() + 3_000, usegmt=True) if when == "date" else when
    async with receiver(status=429, headers={"Retry-After": asked}) as phone:
        settings = notifications(phone=webhook(tmp_path, phone.url))
        async with running_gateway(tmp_path, PEOPLE, notifications=settings) as gateway:
            agent = await gateway.join("agent")
            await propose(agent, "p1")
            await phone.has(1)
            phone.status = 204
            await scanned(gateway)
            assert len(phone.requests) == 1


async def test_a_retry_after_without_end_has_a_limit(tmp_path: Path) -> None:
    async with receiver(status=503, headers={"Retry-After": "999999999999"}) as phone:
        settings = notifications(phone=webhook(tmp_path, phone.url)) | {"max_retry_after_seconds": 0.05}
        async with running_gateway(tmp_path, PEOPLE, notifications=settings) as gateway:
            await propose(await gateway.join("agent"), "p1")
            await phone.has(3)


async def test_a_receiver_that_never_answers_holds_up_neither_others_nor_the_stop(tmp_path: Path) -> None:
    async with receiver(hangs=True) as stuck, receiver() as good:
        settings = notifications(
            stuck=webhook(tmp_path, stuck.url, "stuck"), good=webhook(tmp_path, good.url, "good")
        ) | {"timeout_seconds": 3_000}
        file = write_config(
            tmp_path, gateway_settings({"lab": space_settings(PEOPLE)}, notifications=settings)
        )
        async with served(file) as gateway:
            agent = await gateway.join("agent")
            await propose(agent, "p1")
            await stuck.has(1)
            await good.has(1)
            await propose(agent, "p2")
            await good.has(2)
            # Long before the answer that never comes would be given up.
            code, _ = await gateway.end()
        assert code == 0


async def test_a_slow_receiver_is_given_up_after_the_timeout(tmp_path: Path) -> None:
    async with receiver(hangs=True) as phone:
        settings = notifications(phone=webhook(tmp_path, phone.url)) | {"timeout_seconds": 0.05}
        async with running_gateway(tmp_path, PEOPLE, notifications=settings) as gateway:
            await propose(await gateway.join("agent"), "p1")
            await until_metric(gateway, "unreachable", 2)
            phone.hangs = False
            await until_metric(gateway, "sent", 1)


async def test_a_certificate_of_nobody_is_not_trusted(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path, "private").issue("phone")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    async with receiver(tls=tls) as phone:
        settings = notifications(phone=webhook(tmp_path, phone.url))
        async with running_gateway(tmp_path, PEOPLE, notifications=settings) as gateway:
            await propose(await gateway.join("agent"), "p1")
            await until_metric(gateway, "unreachable", 2)
        assert phone.requests == []


# Restarts


async def test_after_a_restart_only_what_was_not_told_is_told(tmp_path: Path) -> None:
    async with receiver() as phone:
        settings = notifications(phone=webhook(tmp_path, phone.url))
        file = write_config(
            tmp_path, gateway_settings({"lab": space_settings(PEOPLE)}, notifications=settings)
        )
        async with served(file) as gateway:
            agent = await gateway.join("agent")
            await propose(agent, "told")
            await phone.has(1)
            await until(lambda: "told" in told_file(tmp_path))
            phone.status = 500
            await propose(agent, "not-told")
            await propose(agent, "withdrawn")
            await phone.has(3)
            # As a power cut ends it.
            await gateway.end(signal.SIGKILL)
        phone.requests.clear()
        phone.status = 200
        async with served(file) as gateway:
            agent = await gateway.join("agent")
            await propose(agent, "new")
            await until(lambda: {"not-told", "new"} <= set(told_by(phone)))
            await until(lambda: "new" in told_file(tmp_path))
            assert "told" not in told_by(phone)
            assert told_by(phone).count("not-told") == 1


async def test_without_the_file_of_what_was_told_it_is_told_once_more(tmp_path: Path) -> None:
    async with receiver() as phone:
        settings = notifications(phone=webhook(tmp_path, phone.url))
        file = write_config(
            tmp_path, gateway_settings({"lab": space_settings(PEOPLE)}, notifications=settings)
        )
        for broken in (None, b"", b"[1]"):
            if broken is not None:
                (tmp_path / "data/notifications/phone.json").write_bytes(broken)
            async with running_gateway(tmp_path, file=file) as gateway:
                if broken is None:
                    await propose(await gateway.join("agent"), "p1")
                await until(lambda: "p1" in told_file(tmp_path))
                await scanned(gateway)
        assert told_by(phone) == ["p1"] * 3
        assert len({request.headers["webhook-id"] for request in phone.requests}) == 1


async def test_a_disk_that_takes_no_file_costs_only_the_memory_over_a_restart(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data/notifications").write_text("in the way")
    async with receiver() as phone:
        settings = notifications(phone=webhook(tmp_path, phone.url))
        async with running_gateway(tmp_path, PEOPLE, notifications=settings) as gateway:
            agent = await gateway.join("agent")
            await propose(agent, "p1")
            await phone.has(1)
            await propose(agent, "p2")
            await phone.has(2)
            await scanned(gateway)
            assert told_by(phone) == ["p1", "p2"]


async def test_what_was_told_is_forgotten_when_it_is_over(tmp_path: Path) -> None:
    async with receiver() as phone:
        settings = notifications(phone=webhook(tmp_path, phone.url))
        async with running_gateway(tmp_path, PEOPLE, notifications=settings) as gateway:
            agent = await gateway.join("agent")
            await propose(agent, "p1")
            await phone.has(1)
            assert await agent.refused("mcp/withdraw", about=["p1"]) is None
            await scanned(gateway)
            await propose(agent, "p2")
            await until(lambda: "p2" in told_file(tmp_path))
            assert "p1" not in told_file(tmp_path)


# What nobody may learn


async def test_logs_check_and_files_hold_no_address_and_no_secret(tmp_path: Path) -> None:
    async with receiver(status=500) as phone, held() as port:
        settings = notifications(
            phone=webhook(tmp_path, phone.url),
            dead=webhook(tmp_path, f"http://127.0.0.1:{port}/in/s3cr3t-path", "dead"),
        )
        log: Json = {"level": "debug", "file": "gateway.log"}
        spaces = {"lab": space_settings(PEOPLE)}
        file = write_config(tmp_path, gateway_settings(spaces, notifications=settings, log=log))
        async with served(file) as gateway:
            await propose(await gateway.join("agent"), "p1")
            await phone.has(2)
            await until_metric(gateway, "unreachable", 2)
            phone.status = 204
            await until_metric(gateway, "sent", 1)
            answer = "\n".join(gateway.lines)
        assert "public_url: is not set" in answer
        code, checked = await command("serve", str(file), "--check", cwd=tmp_path)
        assert code == 0, checked
        assert "maria is notified by webhook (phone)" in checked
        logged = (tmp_path / "gateway.log").read_text()
        assert "notification not delivered" in logged
        assert "notification sent" in logged
        kept = everything_under(tmp_path / "data").decode("utf-8", "replace")
        for text in (answer, checked, logged, kept, gateway.stderr()):
            assert "s3cr3t" not in text
            assert "whsec_" not in text
            assert str(phone.port) not in text or text is kept


async def test_arguments_are_sent_only_where_that_is_wished_and_cut(tmp_path: Path) -> None:
    async with receiver() as phone:
        settings = notifications(
            phone=webhook(tmp_path, phone.url, include_arguments=True, max_argument_chars=40)
        )
        async with running_gateway(tmp_path, PEOPLE, notifications=settings) as gateway:
            agent = await gateway.join("agent")
            call: Json = {
                "method": "tools/call",
                "params": {"name": "write_file", "arguments": {"path": "a\u202eb", "text": "x" * 500}},
            }
            assert await agent.refused("mcp/proposal", call, id="p1") is None
            (request,) = await phone.has(1)
            (entry,) = request.json["proposals"]
            assert entry["arguments"].startswith('{"path":"a\\u202eb","text":"xxx')
            assert len(entry["arguments"]) == 40
            assert "\u202e" not in request.body.decode()


@pytest.mark.parametrize("wished", [True, False])
async def test_why_a_value_asks_is_told_where_arguments_are(tmp_path: Path, wished: bool) -> None:
    """It names the value, which is nobody's business where arguments are not sent."""
    async with receiver() as phone:
        settings = notifications(phone=webhook(tmp_path, phone.url, include_arguments=wished))
        async with running_gateway(tmp_path, PEOPLE, notifications=settings) as gateway:
            maria, agent = await gateway.join("maria"), await gateway.join("agent")
            why = "path: nobody said “\u202ea”"
            # Before the proposal, so that it is there when the message is written.
            report: Json = {"asks": True, "why": why}
            assert await maria.refused("moot/origins", report, about=["p1"]) is None
            await propose(agent, "p1")
            (request,) = await phone.has(1)
            (entry,) = request.json["proposals"]
            assert entry.get("why") == ("path: nobody said “\\u202ea”" if wished else None)


# Helpers


async def propose(client: Client, id: str, tool: str = "write_file", to: Sequence[str] = ("files",)) -> None:
    call = {"method": "tools/call", "params": {"name": tool, "arguments": {"path": "a"}}}
    assert await client.refused("mcp/proposal", call, id=id, to=to) is None


def told_by(phone: Receiver) -> list[str]:
    return [each["proposal_id"] for request in phone.requests for each in request.json["proposals"]]


def told_file(folder: Path, name: str = "phone") -> str:
    file = folder / "data" / "notifications" / f"{name}.json"
    return file.read_text() if file.is_file() else ""


@asynccontextmanager
async def held() -> AsyncIterator[int]:
    with held_port() as port:
        yield port


async def scanned(gateway: LocalGateway) -> None:
    """Every receiver has looked again, all of it, since this was called."""
    senders = gateway.gateway.notifier.senders if gateway.gateway.notifier is not None else []
    before = [sender.scans for sender in senders]
    # The one that is under way may have begun before.
    await until(lambda: all(each.scans >= past + 2 for each, past in zip(senders, before, strict=True)))


async def until_metric(gateway: GatewayUnderTest, outcome: str, count: int) -> None:
    async def is_there() -> bool:
        text = (await gateway.http.get("/metrics")).text
        found = re.search(rf'moot_notifications_total\{{outcome="{outcome}"\}} (\d+)', text)
        assert found is not None
        return int(found[1]) >= count

    await until_told(is_there)
