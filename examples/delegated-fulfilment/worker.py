"""Does the work that it is asked for: writes files, below one folder and nowhere else."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from moot.participant import IncomingRequest, ToolError, connect

ROOT = Path(sys.argv[1]).absolute()


async def main() -> None:
    async with connect(os.environ["MOOT_URL"], os.environ["MOOT_SPACE"], os.environ["MOOT_TOKEN"]) as space:

        @space.tool
        def write_file(path: str, text: str, request: IncomingRequest) -> str:
            """Write a file below the folder of the newsroom."""
            file = (ROOT / path).resolve()
            if not file.is_relative_to(ROOT):
                raise ToolError(f"{path} is outside")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
            return f"{len(text)} characters written for {request.sender}"

        await space.stay()


if __name__ == "__main__":
    asyncio.run(main())
