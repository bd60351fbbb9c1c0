"""What the page on the shell types is typed beside a `moot up`, and answered as the page shows."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from tests.test_docs import blocks_of, text_of
from tests.up.moot_up import environment, moot_up, write_config
from tests.waiting import bounded
from tests.warm_start import warm_programs

PAGE = "docs/how-to/use-the-shell.md"


def pattern_of(shown: str) -> str:
    """An ellipsis on the page stands for anything within a line."""
    return r"[^\n]*".join(re.escape(part) for part in shown.strip().split("…"))


async def test_the_page_types_what_works(tmp_path: Path) -> None:
    blocks = list(blocks_of(text_of(PAGE)))
    write_config(tmp_path, next(block.code for block in blocks if block.info == "yaml"))
    typed = [
        (block, following)
        for block, following in zip(blocks, [*blocks[1:], blocks[-1]], strict=True)
        if block.info == "sh"
    ]
    script = "printf '\\0'\n".join(f"{block.code}\n" for block, _ in typed)
    path = f"{warm_programs()}:{Path(sys.executable).parent}:{environment()['PATH']}"
    async with moot_up(tmp_path) as up:
        await up.wait_for_state("files", "running", joined=True)
        process = await asyncio.create_subprocess_exec(
            "bash", "-euo", "pipefail", "-c", script,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=tmp_path,
            env=environment(PATH=path),
        )  # fmt: skip
        async with bounded():
            output, errors = await process.communicate()
    assert (process.returncode, errors.decode()) == (0, "")
    shown = 0
    for (block, following), came in zip(typed, output.decode().split("\0"), strict=True):
        if following.info == "":
            shown += 1
            assert re.fullmatch(pattern_of(following.code), came.strip()), f"{PAGE}:{block.line}: {came}"
    assert shown >= 6
