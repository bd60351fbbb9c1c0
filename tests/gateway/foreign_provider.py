"""The certified provider of others (`oidc-provider` from npm), as a process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.ports import held_port
from tests.waiting import bounded

NODE = Path(__file__).parents[2] / ".node" / "node_modules"
AUDIENCE = "https://moot.example"


@asynccontextmanager
async def foreign_provider(
    folder: Path, redirect: str = "http://127.0.0.1:1/back", token_seconds: int = 60
) -> AsyncIterator[str]:
    """Its issuer, once it answers."""
    with held_port() as port:
        # Packages are found beside the script.
        script = folder / "provider.mjs"
        script.write_bytes(Path(__file__).with_suffix(".mjs").read_bytes())
        (folder / "node_modules").symlink_to(NODE)
        process = await asyncio.create_subprocess_exec(
            "node",
            str(script),
            str(port),
            AUDIENCE,
            redirect,
            str(token_seconds),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=os.environ | {"NODE_ENV": "test"},
        )
        assert process.stdout is not None
        try:
            async with bounded():
                line = await process.stdout.readline()
            assert line.startswith(b"ready"), line
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            await process.wait()
