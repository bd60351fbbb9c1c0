"""After random use of a secret, nothing that anybody reads or keeps has its value, in any common form."""

from __future__ import annotations

import base64
import gzip
import json
import os
import random
import string
import sys
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest

from moot.bridges.server.call_secrets import CallSecrets
from moot.cli import main as moot
from moot.config.secret import SecretConfig
from moot.errors import McpError
from moot.mcp.eras import JsonObject
from moot.mcp.stdio_child import Command
from moot.mcp.upstream import StdioServer
from tests.bridges.bridged_space import bridged_space, call
from tests.bridges.server.echoing_server import FORMS
from tests.waiting import until

_SERVER = Path(__file__).with_name("echoing_server.py")
_PLACES = ("result", "error", "failed", "structured", "progress", "log", "stderr", "large")
# `make soak`-like counts by hand: MOOT_SECRET_ROUNDS=2000.
_ROUNDS = int(os.environ.get("MOOT_SECRET_ROUNDS", "0"))


def _forms(value: str) -> set[bytes]:
    found = set()
    for text in (value, value[::-1]):
        plain = text.encode()
        found |= {
            text,
            quote(text, safe=""),
            quote(text),
            json.dumps(text)[1:-1],
            plain.hex(),
            plain.hex().upper(),
        }
        # Without the letters at its ends, which depend on what is before and after it.
        for before in (b"", b"-", b"--"):
            found.add(base64.b64encode(before + plain).decode().rstrip("=")[4:-4])
    return {each.encode() for each in found}


async def test_ten_kinds_of_places_have_no_value(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(40)  # so that a failure can be repeated
    caplog.set_level("DEBUG")
    letters = string.ascii_letters + string.digits + "+/=%&\"'\\ <>\u00e9"
    value = "k" + "".join(chance.choice(letters) for _ in range(30)) + "z"
    secrets = CallSecrets({"KEY": SecretConfig(env="OURS", tools=("use",))}, tmp_path, {"OURS": value})
    # Each form at each place once, in random order; then more, if that is asked for.
    rounds = [(form, place) for form in FORMS for place in _PLACES if place != "large" or form == "plain"]
    rounds += [(chance.choice(list(FORMS)), chance.choice(_PLACES[:-1])) for _ in range(_ROUNDS)]
    chance.shuffle(rounds)
    seen: list[object] = []
    async with bridged_space(tmp_path) as space:
        alice, carl = await space.join("alice"), await space.join("carl")
        server = StdioServer(
            command=Command(argv=(sys.executable, str(_SERVER))), stderr_file=tmp_path / "stderr.log"
        )
        member = await space.bridge(server, secrets=secrets)
        for number, (form, place) in enumerate(rounds):
            arguments: JsonObject = {"key": "{{secret:KEY}}", "form": form, "place": place}
            try:
                if number % 8:
                    seen.append(await call(alice, "use", arguments, progress=seen.append, log=seen.append))
                else:
                    asked = await carl.propose("host", "tools/call", {"name": "use", "arguments": arguments})
                    await until(partial(alice.proposals.get, asked.id))
                    seen.append(await alice.approve(asked.id))
                    seen.append(await asked.outcome())
            except McpError as fault:
                seen.append((str(fault), fault.data))
        seen += [member.upstream.stderr.last_lines(), alice.proposals.get(asked.id), asked.seen.params]
    data = str(tmp_path / "data")
    receipts = [
        "receipt",
        asked.id,
        "--data",
        data,
        "--show",
        "response",
        "-o",
        str(tmp_path / "receipt.json"),
    ]
    for words in (
        ["journal", "send", f"file:{tmp_path}/siem.jsonl", "--data", data],
        ["journal", "send", f"file:{tmp_path}/ocsf.jsonl", "--data", data, "--ocsf"],
        ["journal", "archive", str(tmp_path / "archive.tar.gz"), "--data", data],
        receipts,
    ):
        assert moot(words) == 0, words
    places = {"what members saw": repr(seen).encode(), "logs": caplog.text.encode()}
    for file in tmp_path.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            places[str(file.relative_to(tmp_path))] = (
                gzip.decompress(content) if file.suffix == ".gz" else content
            )
    for name in ("stderr.log", "siem.jsonl", "ocsf.jsonl", "archive.tar.gz", "receipt.json"):
        assert name in places
    everything = b"".join(places.values())
    assert everything.count(b"{{secret:KEY}}") > len(rounds)
    found = {(name, form) for name, content in places.items() for form in _forms(value) if form in content}
    assert found == set()
