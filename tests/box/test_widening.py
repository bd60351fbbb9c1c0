"""What a box refused is proposed as a wider box, and only people who may give rights make it so."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from moot.box.box_support import why_not_confined
from moot.box.boxed_child import Box
from moot.bridges.server.box_widenings import ONCE_SECONDS, BoxWidenings
from moot.config.box_config import BoxConfig
from moot.errors import McpError, UsageError
from moot.mcp.stdio_child import Command
from moot.mcp.upstream import StdioServer
from moot.participant import JoinedSpace, SeenProposal
from moot.protocol.kinds import WIDEN_BOX
from moot.trust.history.proposal_case import case_of
from tests.bridges.bridged_space import HOST, bridged_space, call
from tests.mcp.upstreams import text_of
from tests.rows import for_each_row
from tests.waiting import until

_SERVER = Path(__file__).with_name("reaching_server.py")
_BOXED = [*HOST, {"kind": "mcp/proposal", "payload": {"params": {"name": WIDEN_BOX}}}]


async def _asked(space: JoinedSpace, arguments: dict[str, Any]) -> SeenProposal:
    """The open proposal of the bridge with these arguments."""

    def found() -> list[SeenProposal]:
        return [each for each in space.proposals.open() if each.params.get("arguments") == arguments]

    await until(lambda: len(found()) == 1, lambda: str([each.params for each in space.proposals.open()]))
    return found()[0]


@pytest.mark.skipif(why_not_confined() is not None, reason=f"no box here: {why_not_confined()}")
async def test_a_refusal_is_proposed_and_only_who_may_give_rights_widens_the_box(tmp_path: Path) -> None:
    """Decision 0271."""
    (tmp_path / "notes").mkdir()
    note = tmp_path / "notes" / "a.txt"
    note.write_text("outside")
    box = Box(config=BoxConfig(), folder=tmp_path, home=tmp_path / ".moot" / "boxes" / "host")
    kept = tmp_path / ".moot" / "box-widenings" / "host.json"
    # An agent that may call everything is nobody who gives rights.
    async with bridged_space(tmp_path, {"host": _BOXED, "agent": ["mcp/*", "chat"]}) as space:
        alice, agent = await space.join("alice"), await space.join("agent")
        server = StdioServer(command=Command(argv=(sys.executable, str(_SERVER))))
        await space.bridge(server, box=box)
        # Nothing is listed, and still the refusal of a host is seen.
        assert "403 Forbidden" in text_of(await call(alice, "reach", {"where": "api.example.org:9"}))
        wanted = {"network": "api.example.org:9", "keep": "once"}
        asked = await _asked(alice, wanted)
        assert (asked.proposer, list(asked.to)) == ("host", ["host"])
        for attempt in (lambda: agent.approve(asked.id), lambda: call(agent, WIDEN_BOX, wanted)):
            with pytest.raises(McpError, match="who may give rights"):
                await attempt()
        assert "403 Forbidden" in text_of(await call(alice, "reach", {"where": "api.example.org:9"}))

        # Below /tmp a box has files of its own: there nobody knows which was meant, and it is not proposed.
        for outside in ("/srv/notes/b.txt", str(note)):
            assert (await call(alice, "reach", {"where": outside}))["isError"] is True
        asked = await _asked(alice, {"read": "/srv/notes/b.txt", "keep": "once"})
        always = {"read": str(note), "keep": "always"}
        outcome = await alice.approve(asked.id, params={"name": WIDEN_BOX, "arguments": always})
        assert "allowed for good; the server is started again" in str(outcome)
        assert text_of(await call(alice, "reach", {"where": str(note)})).startswith("outside")
        assert f'"{note}"' in kept.read_text()

        # At once, for whoever goes by the proxy: it is no refusal any more that nobody can be reached.
        await call(alice, WIDEN_BOX, wanted)
        assert "502 Bad Gateway" in text_of(await call(alice, "reach", {"where": "api.example.org:9"}))
        tools = (await alice.request("host", "tools/list"))["tools"]
        assert [each["name"] for each in tools] == ["reach"]


def _widenings(folder: Path, now: list[float]) -> BoxWidenings:
    moot = folder / ".moot"
    listed = BoxConfig(network=("a.test",), read=("seen",))
    box = Box(config=listed, folder=folder, hidden=(moot,), home=moot / "boxes" / "files")
    return BoxWidenings(box, clock=lambda: now[0])


def test_once_ends_and_always_holds_after_a_restart(tmp_path: Path) -> None:
    for name in ("seen", "other", "kept"):
        (tmp_path / name).mkdir()
    other, kept, now = str(tmp_path / "other"), str(tmp_path / "kept"), [0.0]
    made = _widenings(tmp_path, now)
    made.widen({"network": "b.test:443"})
    made.widen({"network": "c.test", "keep": "always"})
    made.widen({"read": other})
    made.widen({"write": kept, "keep": "always"})
    assert made.hosts() == ("a.test", "c.test", "b.test:443")
    assert made.at_start().read == ("seen", other)
    # The second start is another one.
    assert made.at_start().read == ("seen",)
    now[0] = ONCE_SECONDS
    again = _widenings(tmp_path, now)
    assert made.hosts() == again.hosts() == ("a.test", "c.test")
    assert (again.at_start().read, again.at_start().write) == (("seen",), (kept,))
    again.widen({"network": "c.test", "keep": "never"})
    again.widen({"write": kept, "keep": "never"})
    assert _widenings(tmp_path, now).at_start() == BoxConfig(network=("a.test",), read=("seen",))


@for_each_row(
    "arguments, words",
    [
        ({}, "name one of"),
        ({"network": "a.test", "read": "/srv/a"}, "name one of"),
        ({"network": "b.test", "keep": "for ever"}, "name one of"),
        ({"network": "*"}, "one host by its name"),
        ({"network": "*.example.org"}, "one host by its name"),
        ({"network": "169.254.169.254"}, "one host by its name"),
        ({"network": "2130706433"}, "one host by its name"),
        ({"network": ["b.test"]}, "one name"),
        ({"network": "none"}, "one host by its name"),
        ({"network": "b.test", "keep": "never"}, "was not allowed from here"),
        ({"read": "/"}, "no full path"),
        ({"read": "/home"}, "no full path"),
        ({"read": "notes"}, "no full path"),
        ({"read": "/srv/../etc/x"}, "no full path"),
        ({"read": "/srv/\u202enotes"}, "one name"),
        ({"write": "{folder}/.moot/tokens"}, "never shown"),
        ({"read": "{folder}/to-moot"}, "never shown"),
        ({"read": "{folder}/seen/a"}, "already"),
        ({"read": "{folder}/nowhere"}, "not there"),
    ],
)
def test_what_no_approval_allows(arguments: dict[str, Any], words: str, tmp_path: Path) -> None:
    (tmp_path / ".moot").mkdir(exist_ok=True)
    if not (tmp_path / "to-moot").is_symlink():
        (tmp_path / "to-moot").symlink_to(tmp_path / ".moot")
    filled = {
        key: each.replace("{folder}", str(tmp_path)) if isinstance(each, str) else each
        for key, each in arguments.items()
    }
    with pytest.raises(UsageError, match=words):
        _widenings(tmp_path, [0.0]).widen(filled)


def test_rules_never_decide_about_a_wider_box() -> None:
    """A case with unexpected fields is approved by no rule, and nothing is learned from it."""

    def fields(tool: str) -> tuple[str, ...]:
        payload = {"method": "tools/call", "params": {"name": tool, "arguments": {"network": "a.test"}}}
        return case_of("p1", "host", ["host"], payload).unexpected_fields

    assert fields(WIDEN_BOX) == ("a wider box, about which only people decide",)
    assert fields("widen") == ()
