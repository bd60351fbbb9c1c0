"""Previews of proposed calls: what people see, what approving applies, and what is taken back."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from moot.box.box_support import why_not_confined
from moot.box.boxed_child import Box
from moot.bridges.server.call_previews import MAX_WAITING_EACH
from moot.config.box_config import BoxConfig
from moot.errors import McpError, UsageError
from moot.mcp.stdio_child import Command
from moot.mcp.upstream import StdioServer
from moot.participant import JoinedSpace, SeenProposal
from moot.protocol.preview_report import EFFECT_KEY, PreviewReport
from tests.bridges.bridged_space import BridgedSpace, bridged_space, call
from tests.mcp.upstreams import text_of
from tests.waiting import until

_SERVER = Path(__file__).parents[2] / "preview" / "changing_server.py"
pytestmark = pytest.mark.skipif(why_not_confined() is not None, reason=f"no box here: {why_not_confined()}")


class Previewed:
    """Alice, who may do everything, and Carl, who may only propose, at a boxed server."""

    def __init__(self, space: BridgedSpace, alice: JoinedSpace, carl: JoinedSpace, folder: Path) -> None:
        self.space, self.alice, self.carl, self.folder = space, alice, carl, folder

    async def start(self, **config: Any) -> None:
        settings: dict[str, Any] = {"write": ("shared",), "preview": True} | config
        top = self.folder.parent
        box = Box(
            config=BoxConfig(**settings),
            folder=top,
            hidden=(top / ".moot",),
            home=top / ".moot" / "boxes" / "host",
        )
        command = Command(argv=(sys.executable, str(_SERVER), str(self.folder)))
        stack = AsyncExitStack()
        self.stop = stack.aclose
        bridging, self.space.stack = self.space.stack, stack
        await self.space.bridge(StdioServer(command=command), box=box)
        self.space.stack = bridging
        bridging.push_async_callback(stack.aclose)

    async def propose(self, script: str, tool: str = "change") -> SeenProposal:
        made = await self.carl.propose("host", "tools/call", {"name": tool, "arguments": {"script": script}})
        await until(lambda: self.alice.proposals.get(made.id) is not None)
        seen = self.alice.proposals.get(made.id)
        assert seen is not None
        return seen

    async def previewed(self, script: str) -> tuple[SeenProposal, PreviewReport]:
        seen = await self.propose(script)
        await until(lambda: seen.preview is not None)
        assert seen.preview is not None
        return seen, seen.preview

    def tree(self) -> dict[str, str]:
        return {
            str(each.relative_to(self.folder)): each.read_text()
            for each in sorted(self.folder.rglob("*"))
            if each.is_file()
        }


@asynccontextmanager
async def boxed_server(tmp_path: Path, **config: Any) -> AsyncIterator[Previewed]:
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "notes.md").write_text("one\ntwo\n")
    async with bridged_space(tmp_path) as space:
        made = Previewed(space, await space.join("alice"), await space.join("carl"), folder)
        await made.start(**config)
        yield made


_SCRIPT = """
(folder / "notes.md").write_text("one\\nthree\\n")
(folder / "new").mkdir()
(folder / "new" / "a.txt").write_text("a")
say("wrote")
"""


async def test_approving_applies_what_was_seen_and_undo_takes_it_back(tmp_path: Path) -> None:
    async with boxed_server(tmp_path) as previewed:
        seen, report = await previewed.previewed(_SCRIPT)
        assert previewed.tree() == {"notes.md": "one\ntwo\n"}
        assert [each.text() for each in report.changes] == [
            "creates new/",
            "creates new/a.txt, +1 −0",
            "changes notes.md, +1 −1",
        ]
        whole = await previewed.alice.request("host", "moot/preview", {"proposal": seen.id})
        shown = {each["path"]: each["lines"] for each in whole["differences"]}
        assert "-two" in shown["notes.md"]
        assert "+three" in shown["notes.md"]
        outcome = await previewed.alice.approve(seen)
        assert outcome.text == "wrote"
        assert outcome.result["_meta"][EFFECT_KEY] == {"effect": report.effect, "applied": 3}
        assert previewed.tree() == {"notes.md": "one\nthree\n", "new/a.txt": "a"}
        undone = await previewed.alice.request("host", "moot/undo", {"proposal": seen.id})
        assert text_of(undone) == "Taken back: 3 paths are as before."
        assert previewed.tree() == {"notes.md": "one\ntwo\n"}
        with pytest.raises(McpError, match="taken back already"):
            await previewed.alice.request("host", "moot/undo", {"proposal": seen.id})


async def test_files_that_changed_since_mean_that_nothing_is_done_and_there_is_a_new_preview(
    tmp_path: Path,
) -> None:
    async with boxed_server(tmp_path) as previewed:
        seen, report = await previewed.previewed(_SCRIPT)
        (previewed.folder / "notes.md").write_text("somebody else's\n")
        before = previewed.tree()
        with pytest.raises(UsageError, match="nothing was done: files have changed"):
            await previewed.alice.approve(seen)
        assert previewed.tree() == before
        assert seen.status == "pending"
        await until(lambda: seen.preview is not None and seen.preview.effect != report.effect)
        assert (await previewed.alice.approve(seen)).text == "wrote"
        assert previewed.tree()["notes.md"] == "one\nthree\n"


async def test_the_request_names_the_effect_and_no_other_one_is_applied(tmp_path: Path) -> None:
    """Whatever a client does: the bridge compares, and does nothing if it is another effect."""
    async with boxed_server(tmp_path) as previewed:
        for damage in ("another effect", "a file"):
            seen, report = await previewed.previewed(_SCRIPT)
            if damage == "a file":
                (previewed.folder / "new").mkdir()
            wanted = "0" * 64 if damage == "another effect" else report.effect
            before = previewed.tree()
            payload = {"jsonrpc": "2.0", "id": 1, **seen.envelope.payload, "effect": wanted}
            await previewed.alice.send("mcp/request", payload, to="host", about=seen.id)
            await until(partial(_has_failed, seen))
            assert "nothing was done" in str(seen.error or seen.result)
            assert previewed.tree() == before


def _has_failed(seen: SeenProposal) -> bool:
    return seen.outcome == "failed"


async def test_a_proposal_that_is_approved_at_once_runs_as_any_other(tmp_path: Path) -> None:
    async with boxed_server(tmp_path) as previewed:
        seen = await previewed.propose("(folder / 'a').write_text('a'); say('ran')")
        outcome = await previewed.alice.approve(seen)
        assert outcome.text == "ran"
        assert EFFECT_KEY not in outcome.result.get("_meta", {})
        assert previewed.tree()["a"] == "a"


async def test_what_cannot_be_bound_is_said_and_runs_when_it_is_approved(tmp_path: Path) -> None:
    secret = "(folder / 'a').write_text('{{secret:KEY}}')"
    async with boxed_server(tmp_path, network=("192.0.2.1:9",)) as previewed:
        for script, words in (
            ("1 / 0", "the call fails there"),
            (
                "socket.create_connection(('127.0.0.1', 3128)).sendall("
                "b'CONNECT 192.0.2.1:9 HTTP/1.1\\r\\n\\r\\n')\nimport time\ntime.sleep(1)",
                "192.0.2.1:9",
            ),
            ("os.mkfifo(folder / 'pipe')", "neither a file nor a folder"),
            ("os.link(folder / 'notes.md', folder / 'other')", "hard link"),
            ("(folder / 'a').touch(); (folder / 'a').chmod(0o4755)", "the call fails there"),
            ("os.setxattr(folder / 'notes.md', 'user.a', b'b')", "extended attributes"),
            ("(folder / '.git' / 'hooks').mkdir(parents=True)", "outside of the box"),
            ("[(folder / str(n)).touch() for n in range(1_100)]", "more than 1000 files"),
            ("folder.chmod(0o777)", "the mode of the folder itself"),
        ):
            _, report = await previewed.previewed(script)
            assert report.effect == "", script
            assert words in report.why, script
        # Neither is tried: the one would need a value that no preview has, the other says that it reads.
        unseen = [await previewed.propose(secret), await previewed.propose("say('x')", tool="look")]
        await previewed.previewed("say('last')")
        assert [each.preview for each in unseen] == [None, None]
        assert previewed.tree() == {"notes.md": "one\ntwo\n"}


async def test_a_preview_has_no_network_no_secrets_and_leaves_nothing(tmp_path: Path) -> None:
    script = """
try:
    socket.create_connection(("192.0.2.1", 9), 1)
    say("network")
except OSError:
    say("no network")
open(os.path.expanduser("~/kept"), "w").write("x")
say(sorted(name for name in os.environ if "SECRET" in name))
"""
    async with boxed_server(tmp_path) as previewed:
        seen, report = await previewed.previewed(script)
        assert report.changes == ()
        whole = await previewed.alice.request("host", "moot/preview", {"proposal": seen.id})
        assert text_of(whole["result"]) == "no network\n[]"
        assert not (tmp_path / ".moot" / "boxes" / "host" / "kept").exists()


async def test_who_may_not_ask_gets_no_contents(tmp_path: Path) -> None:
    """What everybody reads names paths and counts lines: a proposal is no way to read a file."""
    async with boxed_server(tmp_path) as previewed:
        (previewed.folder / "private.txt").write_text("the password is hunter2\n")
        script = "p = folder / 'private.txt'; say(p.read_text()); p.write_text('mine')"
        seen, report = await previewed.previewed(script)
        assert "hunter2" not in str(report)
        assert not previewed.carl.may_request("host", "moot/preview", {"proposal": seen.id})
        with pytest.raises(McpError, match="no such proposal"):
            await previewed.alice.request("host", "moot/preview", {"proposal": "nothing"})


async def test_undo_is_a_call_like_any_other_and_refuses_what_others_changed(tmp_path: Path) -> None:
    async with boxed_server(tmp_path) as previewed:
        seen, _ = await previewed.previewed(_SCRIPT)
        await previewed.alice.approve(seen)
        (previewed.folder / "new" / "a.txt").write_text("edited since")
        before = previewed.tree()
        with pytest.raises(McpError, match=r"nothing was done: new/a.txt is not as it was"):
            await previewed.alice.request("host", "moot/undo", {"proposal": seen.id})
        assert previewed.tree() == before
        (previewed.folder / "new" / "a.txt").write_text("a")
        made = await previewed.carl.propose("host", "moot/undo", {"proposal": seen.id})
        await until(lambda: previewed.alice.proposals.get(made.id) is not None)
        await previewed.alice.approve(made.id)
        assert previewed.tree() == {"notes.md": "one\ntwo\n"}


async def test_a_restarted_bridge_still_knows_what_was_told_and_what_was_applied(tmp_path: Path) -> None:
    async with boxed_server(tmp_path) as previewed:
        applied, _ = await previewed.previewed(_SCRIPT)
        await previewed.alice.approve(applied)
        told, _ = await previewed.previewed("(folder / 'b').write_text('b')")
        await previewed.stop()
        await previewed.start()
        await previewed.alice.request("host", "moot/undo", {"proposal": applied.id})
        outcome = await previewed.alice.approve(told)
        assert outcome.result["_meta"][EFFECT_KEY]["applied"] == 1
        assert previewed.tree() == {"notes.md": "one\ntwo\n", "b": "b"}


async def test_the_server_reads_what_was_applied_and_forgets_what_it_knew(tmp_path: Path) -> None:
    async with boxed_server(tmp_path) as previewed:
        await call(previewed.alice, "look", {"script": "state['seen'] = 1"})
        seen, _ = await previewed.previewed(_SCRIPT)
        await previewed.alice.approve(seen)
        script = "say(dict(state)); say((folder / 'notes.md').read_text())"
        shown = await call(previewed.alice, "look", {"script": script})
        assert text_of(shown) == "{}\none\nthree\n"


async def test_who_proposes_many_gets_previews_of_a_few(tmp_path: Path) -> None:
    async with boxed_server(tmp_path) as previewed:
        slow = "import time; time.sleep(0.5)"
        seen = [await previewed.propose(slow) for _ in range(12)]
        await until(lambda: sum(each.preview is not None for each in seen) == MAX_WAITING_EACH + 1)
        late = await previewed.propose("say('late')")
        await until(lambda: late.preview is not None)
        assert sum(each.preview is not None for each in seen) == MAX_WAITING_EACH + 1
