"""The ways out of a box, tried in ours and in npm's `@anthropic-ai/sandbox-runtime`: a table of both.

`python -m tests.box.other_boxes PACKAGES`: the folder into which that package was installed. On the PATH it
needs socat and ripgrep. It is set up once as it comes, with the folder to write alone, and once as near to
our box as its settings allow.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from moot.box.boxed_child import Box
from moot.resilience.child_process import start_child
from tests.box.outside_world import BOUNDS, VARIABLE, outcome_of, outside_world

# What our box has nothing of.
_HIDDEN = ("/etc/shadow", "/etc/ssl/private", "/var/log", "/run", "/sys", "/root", "/home")
_OPEN = "**open**"
# It had no effect as it was tried; nothing keeps it from the kernel.
_LOOKED = "not filtered"
_CLI = "node_modules/@anthropic-ai/sandbox-runtime/dist/cli.js"


def _ours(folder: Path) -> Any:
    shared = folder / "shared"
    listed = replace(BOUNDS, write=(".",), read=("../readable",))
    return Box(config=listed, folder=shared, hidden=(shared / ".moot",), home=folder / "home").start


def _theirs(packages: Path, folder: Path, filesystem: Mapping[str, list[str]]) -> Any:
    settings = folder / "srt.json"
    network: dict[str, list[str]] = {"allowedDomains": [], "deniedDomains": []}
    filled = {"denyRead": [], "denyWrite": [], **filesystem}
    settings.write_text(json.dumps({"network": network, "filesystem": filled}))

    async def start(argv: list[str], *, environment: Mapping[str, str], **options: Any) -> Any:
        whole = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        whole |= {**environment, "PATH": os.environ["PATH"]}
        command = ["node", str(packages / _CLI), "--settings", str(settings), "-c", shlex.join(argv)]
        return await start_child(command, environment=whole, **options)

    return start


async def _run(name: str, packages: Path) -> dict[str, str]:
    with tempfile.TemporaryDirectory(prefix="boxes-", dir=Path.home()) as made:
        folder = Path(made)
        shared = folder / "shared"
        with outside_world(folder) as outside:
            outside["apart"] = True
            if name == "ours":
                start = _ours(folder)
            elif name == "as it comes":
                start = _theirs(packages, folder, {"allowWrite": [str(shared)]})
            else:
                python = {str(Path(each)) for each in (sys.prefix, sys.base_prefix)}
                hidden = [str(Path.home()), str(folder), str(shared / ".moot"), *_HIDDEN]
                start = _theirs(
                    packages,
                    folder,
                    {
                        "denyRead": hidden,
                        "allowRead": [
                            *python,
                            str(shared),
                            str(folder / "readable"),
                            str(Path(__file__).parent),
                        ],
                        "allowWrite": [str(shared)],
                        "denyWrite": [str(shared / "moot.yaml"), str(shared / ".moot")],
                    },
                )
            return await outcome_of(start, outside, shared, {"PATH": "/usr/bin:/bin"})


def _shown(outcome: str) -> str:
    if outcome.startswith("escaped: the kernel looked"):
        return _LOOKED
    return _OPEN if outcome.startswith("escaped") else f"no: {outcome}"


async def main(packages: Path) -> None:
    os.environ["ESCAPE_TEST"] = VARIABLE
    found = {}
    for name in ("ours", "as it comes", "set up alike"):
        try:
            found[name] = await _run(name, packages)
        except AssertionError as fault:
            print(f"{name}: not run: {fault}", file=sys.stderr)
    print(f"| tried | {' | '.join(found)} |\n|---|{'---|' * len(found)}")
    for tried in next(iter(found.values())):
        outcomes = [each.get(tried, "not tried") for each in found.values()]
        shown = [_shown(each) for each in outcomes]
        print(f"| {tried} | {' | '.join(shown)} |")
    for name, outcomes_by_try in found.items():
        marks = [_shown(each) for each in outcomes_by_try.values()]
        print(f"{name}: {marks.count(_OPEN)} of {len(marks)} open, {marks.count(_LOOKED)} calls not filtered")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).absolute()))
