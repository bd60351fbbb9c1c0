"""Gateways whose versions might decide differently are never in one cluster at a time."""

from __future__ import annotations

import msgspec
import pytest

from moot.errors import UsageError
from moot.gateway.cluster import shard_service, shard_snapshots
from moot.gateway.cluster.cluster_shard import Shard
from moot.gateway.cluster.nats.batch import FORMAT, BatchHead, decode_batch, encode_batch
from moot.gateway.cluster.nats.gateway_table import decide_alike
from moot.gateway.cluster.shard_service import ShardService
from tests.gateway.cluster.conftest import StartGateway


async def test_another_version_starts_when_all_others_have_stopped_and_goes_on_with_their_space(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start("a") as a:
        alice = await a.join("alice")
        await alice.ask("space/kick", {"participant_id": "carol"})
        monkeypatch.setattr(shard_service, "__version__", "99.0.0")
        with pytest.raises(UsageError, match=r"gateway a of this cluster runs Moot .*, and this is 99\.0\.0"):
            async with start("b"):
                pass
        assert await alice.refused("chat", {"text": "undisturbed"}) is None
    # The start that failed has left nothing open.
    async with start("b") as b:
        assert await b.status("/ws?space=lab", token="t-carol") == 401
        monkeypatch.undo()
        with pytest.raises(UsageError, match=r"gateway b of this cluster runs Moot 99\.0\.0"):
            async with start("a"):
                pass


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("0.2.0", "0.2.0", True),
        ("0.2.0", "0.2.13", True),
        ("0.2.9", "0.3.0", False),
        ("0.2.0", "1.2.0", False),
        ("0.2.0.dev0", "0.2.0.dev0", True),
        ("0.2.0.dev0", "0.2.0", False),
        ("0.2.0rc1", "0.2.1", False),
        ("0.2", "0.2.1", False),
        ("", "0.2.1", False),
    ],
)
def test_patch_releases_of_one_series_decide_alike(one: str, other: str, *, alike: bool) -> None:
    assert decide_alike(one, other) == decide_alike(other, one) == alike


async def test_a_cluster_is_upgraded_to_a_patch_release_one_gateway_at_a_time(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    def release(version: str) -> None:
        for module in (shard_service, shard_snapshots):
            monkeypatch.setattr(module, "__version__", version)

    release("7.1.0")
    async with start("b") as b:
        bob = await b.join("bob")
        async with start("a") as a:
            await (await a.join("alice")).ask("chat", {"text": "before"})
        release("7.1.1")
        async with start("a") as a:
            await (await a.join("alice")).ask("chat", {"text": "after"})
            await bob.hear(lambda each: each["payload"].get("text") == "before")
            await bob.hear(lambda each: each["payload"].get("text") == "after")
            assert await bob.refused("chat", {"text": "with both"}) is None


async def test_of_two_versions_that_start_together_not_both_serve(
    start: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither sees the other when it looks first."""
    look, looked = ShardService._check_versions, list[str]()

    def look_too_early(service: ShardService, shard: Shard) -> None:
        looked.append(service._node.name)
        if looked.count("b") != 1:
            look(service, shard)

    monkeypatch.setattr(ShardService, "_check_versions", look_too_early)
    async with start("a"):
        monkeypatch.setattr(shard_service, "__version__", "99.0.0")
        with pytest.raises(UsageError, match="gateway a of this cluster runs Moot"):
            async with start("b"):
                pass
    assert looked.count("b") == 2


def test_a_message_in_a_format_of_another_version_is_refused() -> None:
    head = BatchHead(FORMAT + 1, "b", 1, 1, "seed")
    with pytest.raises(UsageError, match=f"writes the log in format {FORMAT + 1}"):
        decode_batch(encode_batch(head, b""))
    with pytest.raises(UsageError, match="no gateway wrote"):
        decode_batch(msgspec.json.encode({"v": "x"}))
