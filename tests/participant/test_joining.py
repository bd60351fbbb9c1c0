"""Coming into a space, knowing who is there, and leaving."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import moot
from moot.errors import ConnectionClosed, NotAdmitted, NotAllowed, Unreachable, UsageError
from moot.participant import JoinedSpace, ParticipantLimits, connect, name_from, token_from
from moot.participant.connection.roster import PresenceEvent
from tests.gateway.running_gateway import participants
from tests.participant.gateway_with_members import QUICK, ReceivedEnvelopes, gateway_with, settled
from tests.participant.rogue_gateway import rogue_gateway
from tests.waiting import HANG_SECONDS, until


async def test_ten_lines_make_a_member_with_a_tool(tmp_path: Path) -> None:
    """The example of the documentation."""
    async with (
        gateway_with(tmp_path, adder=["mcp/response"], alice=["*"]) as gateway,
        moot.connect(gateway.url, "lab", "t-adder") as space,
    ):

        @space.tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        alice = await gateway.join("alice")
        outcome = await alice.call("adder", "add", {"a": 1, "b": 2})
        assert outcome.structured == {"result": 3}
        assert outcome.text == "3"
        assert (outcome.how, outcome.by, outcome.host) == ("direct", "alice", "adder")


@pytest.mark.requirement("MEW-8.2-13", "MEW-5.2-8", "MEW-8.2-15", "MEW-5.2-9")
async def test_the_welcome_tells_who_we_are_and_what_we_may_do(tmp_path: Path) -> None:
    rights = ["chat", {"kind": "mcp/request", "payload": {"method": "tools/*"}}]
    async with gateway_with(tmp_path, alice=["*"], bob=rights) as gateway:
        bob = await gateway.join("bob")
        assert bob.me == "bob"
        assert bob.name == "bob"
        assert [each.original for each in bob.rights.capabilities] == [{"kind": "chat"}, rights[1]]
        assert bob.may("chat", {"text": "hi"})
        assert bob.may_request("alice", "tools/call", {"name": "x"})
        assert not bob.may_request("alice", "resources/read", {"uri": "x"})
        assert not bob.may("space/kick", {"participant_id": "alice"})
        received = await gateway.raw("alice")
        with pytest.raises(NotAllowed, match="resources/read") as refusal:
            await bob.request("alice", "resources/read", {"uri": "x"})
        assert refusal.value.missing == ("mcp/request",)
        with pytest.raises(NotAllowed):
            await bob.admin.kick("alice")
        # Nothing of it left us: not even a refusal came back.
        await bob.chat("still here")
        kinds = [each["kind"] for each in await received.fence()]
        assert kinds == ["chat"]
        assert bob.counts.unasked_refusals == 0


@pytest.mark.requirement("MEW-8.2-14")
async def test_the_roster_follows_joins_and_leaves(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=["chat"], carol=["chat", "mcp/proposal"]) as gateway:
        alice = await gateway.join("alice")
        assert len(alice.roster) == 0
        events: list[PresenceEvent] = []
        alice.roster.on_change(events.append)
        async with connect(gateway.url, "lab", "t-bob", limits=QUICK) as bob:
            await alice.roster.wait_for("bob", timeout_seconds=HANG_SECONDS)
            assert list(bob.roster) == ["alice"]
            assert alice.roster["bob"].may("chat", {"text": "x"})
            assert not alice.roster["bob"].may("mcp/proposal", {"method": "x"})
            await gateway.join("carol")
            await alice.roster.wait_for("carol", timeout_seconds=HANG_SECONDS)
            assert set(alice.roster) == {"bob", "carol"}
        await until(lambda: "bob" not in alice.roster)
        assert [(event.event, event.member and event.member.id) for event in events] == [
            ("join", "bob"),
            ("join", "carol"),
            ("leave", "bob"),
        ]


async def test_a_runtime_id_can_be_wished_for_and_names_still_work(tmp_path: Path) -> None:
    """D-19: whoever is asked by its name answers, and the answer counts."""
    async with gateway_with(tmp_path, alice=["*"], bob=["*"]) as gateway:
        alice = await gateway.join("alice")
        bob = await gateway.join("bob", participant="bob-laptop")
        assert (bob.me, bob.name) == ("bob-laptop", "bob")
        await alice.roster.wait_for("bob", timeout_seconds=HANG_SECONDS)
        assert alice.roster["bob"].id == "bob-laptop"

        @bob.tool
        def whoami() -> str:
            return bob.me

        assert (await alice.call("bob", "whoami")).text == "bob-laptop"
        assert (await alice.call("bob-laptop", "whoami")).text == "bob-laptop"
        assert (await alice.admin.grant("bob", [{"kind": "chat"}])).acknowledged == "accepted"


@pytest.mark.parametrize(("name", "known_as"), [("alice", "alice"), (None, "somebody")])
async def test_a_gateway_that_wants_a_join_frame_gets_one(name: str | None, known_as: str) -> None:
    """The reference implementation's looks at no header, and takes the name that the frame gives."""
    async with rogue_gateway() as gateway:
        gateway.waits_for_join = True
        async with connect(gateway.url, "My Project", "t-alice", name=name, limits=QUICK) as alice:
            assert alice.me == known_as
            await alice.chat("hello")
        [join] = gateway.joins
        expected = {"type": "join", "space": "My Project", "token": "t-alice"}
        assert join == expected | ({} if name is None else {"participantId": name})


async def test_a_join_frame_beside_a_header_changes_nothing(tmp_path: Path) -> None:
    """D-20; whoever it names."""
    async with (
        gateway_with(tmp_path, alice=["*"], bob=["*"]) as gateway,
        connect(gateway.url, "lab", "t-alice", name="bob", limits=QUICK) as alice,
    ):
        assert (alice.me, alice.name) == ("alice", "alice")
        await alice.chat("hello")
        await settled(alice)
        assert alice.counts.unasked_refusals == 0


def test_whose_token_a_file_holds_is_in_its_name() -> None:
    assert name_from("/a/.mew/tokens/coder.token") == "coder"
    assert name_from("token.txt") is None
    assert name_from(".token") is None


async def test_a_wrong_token_or_space_is_said_in_words(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"]) as gateway:
        with pytest.raises(NotAdmitted, match="check the token") as refusal:
            async with connect(gateway.url, "lab", "t-nobody", limits=QUICK):
                pass
        assert refusal.value.status == 401
        with pytest.raises(NotAdmitted, match="name of the space") as refusal:
            async with connect(gateway.url, "elsewhere", "t-alice", limits=QUICK):
                pass
        assert refusal.value.status == 404
        # A join frame is refused on the socket.
        with pytest.raises(NotAdmitted) as refusal:
            async with connect(gateway.url, "lab", "t-nobody", participant="me", limits=QUICK):
                pass
        assert refusal.value.code == 1008


async def test_nobody_there_is_told_after_a_bounded_time() -> None:
    limits = ParticipantLimits(connect_seconds=0.2)
    with pytest.raises(Unreachable, match="cannot be reached"):
        async with connect("http://127.0.0.1:9", "lab", "t", limits=limits):
            pass


async def test_an_address_that_is_none_is_a_mistake_of_the_caller() -> None:
    for url in ("localhost:8080", "ftp://localhost", "http://", "http://user:word@localhost", "http://h:0x"):
        with pytest.raises(UsageError, match="address"):
            async with connect(url, "lab", "t"):
                pass
    with pytest.raises(UsageError, match="mew, mcpx, m3p"):
        async with connect("http://localhost", "lab", "t", dialect="mcp"):  # type: ignore[arg-type]
            pass


def test_a_token_file_holds_one_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    file.chmod(0o600)
    assert token_from(file) == "s3cret"
    file.write_text("two words")
    with pytest.raises(UsageError, match="2 words"):
        token_from(file)
    with pytest.raises(UsageError, match="no token can be read"):
        token_from(tmp_path / "absent")


async def test_an_error_in_the_block_comes_out_as_it_is(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=["*"]) as gateway:
        bob = await gateway.join("bob")
        await bob.roster.wait_for("alice", timeout_seconds=HANG_SECONDS) if "alice" in bob.roster else None
        with pytest.raises(ZeroDivisionError):
            async with connect(gateway.url, "lab", "t-alice", limits=QUICK):
                raise ZeroDivisionError
        await until(lambda: "alice" not in bob.roster)


async def test_after_leaving_everything_says_so(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, alice=["*"], bob=["*"]) as gateway:
        await gateway.join("bob")
        async with connect(gateway.url, "lab", "t-alice", limits=QUICK) as alice:
            reading = asyncio.create_task(_collect(alice))
            waiting = asyncio.create_task(
                alice.request("bob", "x-never/answered", timeout_seconds=HANG_SECONDS)
            )
            await asyncio.sleep(0)
            await alice.close("enough")
            assert (await alice.stay()).code == 1000
            assert alice.state == "closed"
            with pytest.raises(ConnectionClosed):
                await waiting
            with pytest.raises(ConnectionClosed):
                await alice.chat("too late")
            await reading


async def _collect(space: JoinedSpace) -> int:
    return len([item async for item in space.envelopes()])


async def test_two_connections_of_one_identity_and_a_passive_one_answers_nothing(tmp_path: Path) -> None:
    """D-22: `moot tail` beside an agent must not answer for it."""
    async with gateway_with(tmp_path, alice=["*"], bob=["*"]) as gateway:
        alice = await gateway.join("alice")
        agent = await gateway.join("bob")
        tail = await gateway.join("bob", passive=True)

        @agent.tool
        def hello() -> str:
            return "from the agent"

        received = ReceivedEnvelopes(tail)
        for _ in range(5):
            assert (await alice.call("bob", "hello")).text == "from the agent"
        assert len(received.of("mcp/response")) == 5
        assert tail.counts.sent == 0


async def test_what_comes_right_behind_the_welcome_finds_the_handlers_of_the_block() -> None:
    """Whatever stands before the first await of the block counts as registered from the start."""
    async with rogue_gateway() as gateway:
        gateway.behind_the_welcome = 3
        async with connect(gateway.url, "lab", "t", limits=QUICK) as me:
            received = ReceivedEnvelopes(me)

            @me.tool
            def hello() -> str:
                return "hi"

            await received.wait("chat", 3)
            answer = await gateway.wait_for("mcp/response")
            assert answer["payload"]["result"]["content"][0]["text"] == "hi"


async def test_a_newer_exclusive_connection_ends_the_older_for_good(tmp_path: Path) -> None:
    """D-22, close code 4001."""
    people = participants(alice={"capabilities": [{"kind": "*"}], "exclusive": True})
    async with gateway_with(tmp_path, people=people) as gateway:
        first = await gateway.join("alice")
        await gateway.join("alice")
        ending = await first.stay()
        assert ending.code == 4001
        assert first.state == "closed"
