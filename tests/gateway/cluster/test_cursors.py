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


async def test_a_gateway_that_began_later_shows_what_others_have_or_says_that_they_have_it(
    start: StartGateway,
) -> None:
    """What it does not have is not called the beginning."""
    async with start("a", cluster={"snapshot_inputs": 20}) as a:
        alice = await a.join("alice")
        await say(alice, 0, 60)
        # In no list of the configuration: when it came stands in the journal of `a`, and in no other.
        ida = (await alice.ask("space/invite", {"participant_id": "ida"}))["payload"]["token"]
        await say(alice, 60, 90)
        node = a.gateway.node
        assert node is not None
        await until(lambda: node.shards[0].snapshots >= 4)
        async with start("b", cluster={"snapshot_inputs": 20}) as b:
            bob = await b.join("bob")
            await say(alice, 90, 91)
            await bob.hear(lambda message: message["payload"].get("text") == "90")

            async def history_of(token: str) -> tuple[list[str], Any]:
                """All that can be read at the gateway that came later, and how that ends."""
                texts, before = list[str](), dict[str, str]()
                while True:
                    page = await page_of(b, token=token, **before)
                    texts = [each["payload"]["text"] for each in page["messages"]] + texts
                    if page["before"] is None:
                        return texts, page
                    before = {"before": str(page["before"])}

            texts, last = await history_of("t-alice")
            assert (texts, last["end"]) == ([str(number) for number in range(91)], "beginning")
            # Not what was said before she came.
            texts, last = await history_of(ida)
            assert (texts, last["end"]) == ([str(number) for number in range(60, 91)], "not_a_member")
            # The other one does not answer. A word that all clients know, and none takes for the beginning.
            a.gateway.directory.others.of_files.clear()
            texts, last = await history_of("t-alice")
            assert len(texts) < 91
            assert (last["end"], last["elsewhere"]) == ("removed", True)


async def page_of(gateway: LocalGateway, token: str = "t-alice", **params: str) -> Any:
    headers = {"Authorization": f"Bearer {token}"}
    asked = {"kind": "chat"} | params
    answer = await gateway.http.get("/spaces/lab/history", headers=headers, params=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()
