"""The audit log on a bad disk, and what must stand nowhere: words and secrets in files, log and relay."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
from collections import Counter
from pathlib import Path

import orjson
import pytest

from moot.protocol.operation import Json
from tests.waiting import until
from tests.xprotocol.adapter.adapter_environment import (
    NAMESPACE,
    adapter_environment,
    notes_server,
    running_adapter,
)
from tests.xprotocol.adapter.test_inbound_relays import ADAPTER

KIND, WRITE = f"{NAMESPACE}.read_note", f"{NAMESPACE}.write_note"


async def test_a_line_that_a_full_disk_cut_off_is_neither_left_torn_nor_written_twice(tmp_path: Path) -> None:
    notes = notes_server(tmp_path)
    file = tmp_path / "keys" / "adapter.data" / "audit.jsonl"
    async with adapter_environment(tmp_path, notes) as environment:
        async with environment.running():
            events = [environment.alice.event(WRITE, {"name": f"{n}", "text": "x"}) for n in range(6)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", ADAPTER, str(environment.write()), start_new_session=True
        )
        try:
            await environment.alice.send(events[0])
            await environment.alice.answer(events[0])
            await until(lambda: file.exists() and file.read_bytes().endswith(b"\n"))
            # Room for half a line more.
            size = file.stat().st_size + 100
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            for each in events[1:]:
                await environment.alice.send(each)
            for each in events[1:]:
                await environment.alice.answer(each)
            # It tries again after a second: once at least while there is no room, and it may well be never.
            await asyncio.sleep(1.2)
            unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, unlimited)
            wanted = {each.event.id for each in events}
            await until(lambda: all(each.encode() in file.read_bytes() for each in wanted))
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        lines = [orjson.loads(line) for line in file.read_bytes().splitlines()]
        assert Counter(line["event"] for line in lines) == dict.fromkeys(wanted, 1)


SECRETS = ("pear-tree-token-5512", "cellar-password-8840")
WORDS = ("persimmon", "quillwort", "ratatouille", "marginalia")


@pytest.mark.requirement("XP-8.6-4")
async def test_neither_words_nor_secrets_stand_in_any_file_or_line_beside_the_server_s_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Calls, faults, refusals, prompts, resources and describes; then everything on disk is searched."""
    with caplog.at_level(logging.DEBUG):
        notes = notes_server(
            tmp_path, env={"DESK_TOKEN": SECRETS[0]}, pass_env=["DESK_PASSWORD"], flags=["--serves"]
        )
        async with adapter_environment(tmp_path, notes) as environment:
            environment.environ["DESK_PASSWORD"] = SECRETS[1]
            async with environment.running():
                eve = await environment.somebody("eve")
                write: dict[str, Json] = {"name": "fruit", "text": WORDS[0]}
                asked: list[tuple[str, Json]] = [
                    (WRITE, write),
                    (KIND, {"name": "fruit"}),
                    (KIND, {"name": WORDS[1]}),
                    (KIND, {WORDS[2]: 1}),
                    (f"{NAMESPACE}.run_fail", {"why": WORDS[1]}),
                    (f"{NAMESPACE}.resource.subscribe", {"uri": "note:///fruit"}),
                    (f"{NAMESPACE}.prompt.greet", {"who": WORDS[3]}),
                    ("xp.schema.describe", {"intent": f"{WORDS[3]} a note"}),
                    (f"{NAMESPACE}.{WORDS[2]}", {}),
                ]
                for kind, payload in asked:
                    mine = await environment.alice.ask(kind, payload)
                    assert SECRETS[0] not in str(mine.payload)
                    theirs = await eve.ask(kind, payload)
                    assert WORDS[0] not in str(theirs.payload)
                await environment.adapter.audit.flush()
                status = orjson.dumps(environment.adapter.status()).decode()
                for hidden in (*SECRETS, *WORDS):
                    assert hidden not in status
        searched = 0
        for file in tmp_path.rglob("*"):
            # What the server itself keeps, and the operator's own file with its variables.
            if file.is_file() and notes.folder not in file.parents and file != environment.file:
                searched += 1
                data = file.read_bytes()
                for hidden in (*SECRETS, WORDS[0], WORDS[1], WORDS[3]):
                    assert hidden.encode() not in data, file
        assert searched >= 6
    output = "\n".join(f"{each.getMessage()} {each.__dict__}" for each in caplog.records)
    for hidden in (*SECRETS, WORDS[0], WORDS[1], WORDS[3]):
        assert hidden not in output


async def test_whatever_is_noted_of_a_hostile_kind_or_conversation_stays_one_line(tmp_path: Path) -> None:
    """Kinds and conversations are a stranger's words: they must not look like another entry."""
    async with running_adapter(tmp_path, notes_server(tmp_path)) as adapter:
        eve = await adapter.somebody("eve")
        forged = '"}\n{"outcome":"ok","principal":"me'
        await eve.ask(f"{NAMESPACE}.x\u2028\u00a0"[:-2] + "y", {}, correlation_id=forged)
        await eve.ask('x","outcome":"ok', {}, correlation_id="\x1b[2J" + forged)
        await adapter.adapter.audit.flush()
        file = adapter.adapter.settings.audit_file
        assert file is not None
        lines = [orjson.loads(line) for line in file.read_bytes().splitlines()]
        assert [line["outcome"] for line in lines] == ["NOT_FOUND", "NOT_FOUND"]
        assert b"\x1b" not in file.read_bytes()
