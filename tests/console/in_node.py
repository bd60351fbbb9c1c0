"""The console's modules that need no page, run by Node.js: the engine of the browser, without a browser."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import moot
from moot.protocol.operation import Json
from tests.bridges.foreign_servers import NODE
from tests.waiting import HANG_SECONDS

_CONSOLE = Path(moot.__file__).parent / "console"
_RUN = """
const bring = (module) => import(new URL(module, process.argv[1]).href);
let given = "";
for await (const part of process.stdin.setEncoding("utf-8")) given += part;
const result = await (%s)(bring, JSON.parse(given));
process.stdout.write(JSON.stringify(result ?? null));
"""


def in_node(function: str, given: Json = None) -> Any:
    """What `async (bring, given) => …` gives; `bring("views/rows.js")` imports a module of the console."""
    if not NODE.exists():
        pytest.fail("Node.js is missing: make .node/installed")
    ran = subprocess.run(  # noqa: S603 (of the tests themselves)
        [NODE, "--input-type=module", "--eval", _RUN % function, _CONSOLE.as_uri() + "/"],
        input=json.dumps(given).encode(),
        capture_output=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    return json.loads(ran.stdout)


def each_in_node(module: str, expression: str, cases: Json) -> list[Any]:
    """A function of a module `m`, over many cases at once."""
    answers: list[Any] = in_node(
        f"async (bring, cases) => {{ const m = await bring('{module}'); return cases.map({expression}); }}",
        cases,
    )
    return answers
