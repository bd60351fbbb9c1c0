"""How fast somebody sent is not in the journal, and a restart forgets it: so no replay refuses for that."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.running_gateway import gateway_settings, participants, space_settings
from tests.gateway.socketless_gateway import chat, socketless_gateway


async def test_what_a_restart_let_pass_is_replayed_from_before_that_restart(tmp_path: Path) -> None:
    """As when the newest snapshot is damaged and an older one is the base."""
    space = space_settings(participants(alice=["*"]), limits={"bytes_per_second": 100})
    async with socketless_gateway(tmp_path, gateway_settings({"lab": space})) as home:
        for id in ("long-1", "long-2"):
            alice = home.join("alice")
            # Fifty seconds' worth: only one may pass, until the gateway is started again.
            alice.say(chat("alice", id, payload={"text": "x" * 5_000}))
            alice.say(chat("alice", "more"))
            await home.rest()
            assert alice.last_refusal()["error"] == "rate_limited"
            await home.close()
            await home.open()
        accepted = [each["id"] for each in home.records() if each.get("out") == "accepted" and "id" in each]
        assert accepted == ["long-1", "long-2"]
        home.check_replay()
        assert "long-2" in home.host.space.state.window
        # And nobody is faster for it.
        assert home.host.space.state.send_rate.seconds_per_byte == 0.01
