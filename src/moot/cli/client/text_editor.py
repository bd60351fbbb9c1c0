"""A text that a person edits in their own editor."""

from __future__ import annotations

import asyncio
import os
import shlex
import tempfile
from pathlib import Path
from typing import Final

from moot.errors import UsageError

# As git and others look for it.
_VARIABLES: Final = ("VISUAL", "EDITOR")


async def edit_text(text: str) -> str:
    """Open an editor and wait until it is closed; raises UsageError if it cannot be used."""
    editor = next((os.environ[name] for name in _VARIABLES if os.environ.get(name)), "vi")
    # The folder is this user's alone.
    with tempfile.TemporaryDirectory(prefix="moot-") as folder:
        file = Path(folder) / "arguments.json"
        file.write_text(text)
        try:
            process = await asyncio.create_subprocess_exec(*shlex.split(editor), str(file))
        except (OSError, ValueError) as fault:
            raise UsageError(f"the editor {editor!r} cannot be started ({fault}): set EDITOR") from None
        if await process.wait() != 0:
            raise UsageError(f"the editor {editor!r} ended with an error: nothing was done")
        return file.read_text()
