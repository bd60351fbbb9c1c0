"""A place in the history that one gateway gave is the same place at the others."""

from __future__ import annotations

from typing import Any

from tests.gateway.cluster.conftest import StartGateway
from tests.gateway.cluster.test_kept_log import say
from tests.gateway.running_gateway import LocalGateway
from tests.waiting import until


async def test_pages_of_the_history_go_on_at_another_gateway(start: StartGateway) -> None:
    """One that came later has other records, and the same messages since then."""
    async with start("a", cluster={"snapshot_inputs": 20}) as a:
        alice = await a.join("alice")
        await say(alice, 0, 60)
        node = a.gateway.node
        assert node is not None
        await until(lambda: node.shards[0].snapshots >= 2)
        async with start("b", cluster={"snapshot_inputs": 20}) as b:
            # In one message of the log, perhaps.
            for number in range(60, 100):
                await alice.say("chat", {"text": str(number)})
            await alice.fence()
            await (await b.join("bob")).fence()
            texts: list[str] = []
            before: dict[str, str] = {}
            for turn in range(100):
                page = await page_of(b if turn % 2 else a, limit="3", **before)
                texts = [each["payload"]["text"] for each in page["messages"]] + texts
                before = {"before": str(page["before"])}
                if len(texts) >= 30:
                    break
            assert texts == [str(number) for number in range(100 - len(texts), 100)]
            # The end is the end wherever it is asked for, and a time before all of it is not its middle.
            assert (await page_of(a, before="1"))["messages"] == []


async def test_a_poll_goes_on_at_another_gateway(start: StartGateway) -> None:
    async with start("a") as a, start("b") as b:
        alice, bob = await a.join("alice"), await b.join("bob")
        await say(alice, 0, 5)
        first = await a.poll("alice", space="lab")
        await say(alice, 5, 8)
        await bob.hear(lambda message: message["payload"].get("text") == "7")
        rest = await b.poll("alice", space="lab", since=first["next"])
        assert [each["payload"]["text"] for each in rest["messages"] if each["kind"] == "chat"] == [
            "5",
            "6",
            "7",
        ]
        assert (await a.poll("alice", space="lab", since=rest["next"]))["messages"] == []


async def page_of(gateway: LocalGateway, **params: str) -> Any:
    answer = await gateway.http.get(
        "/spaces/lab/history", headers={"Authorization": "Bearer t-alice"}, params={"kind": "chat"} | params
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_gateway_that_began_later_says_that_older_messages_are_elsewhere(start: StartGateway) -> None:
    """What it does not have is not called the beginning."""
    async with start("a", cluster={"snapshot_inputs": 20}) as a:
        alice = await a.join("alice")
        await say(alice, 0, 60)
        node = a.gateway.node
        assert node is not None
        await until(lambda: node.shards[0].snapshots >= 2)
        async with start("b", cluster={"snapshot_inputs": 20}) as b:
            bob = await b.join("bob")
            await say(alice, 60, 61)
            await bob.hear(lambda message: message["payload"].get("text") == "60")
            here, whole = [await page_of(each) for each in (b, a)]
            assert (here["end"], whole["end"]) == ("elsewhere", "beginning")
            assert len(here["messages"]) < len(whole["messages"]) == 61
            # Also on a page that has none of it.
            assert (await page_of(b, before="1"))["end"] == "elsewhere"
