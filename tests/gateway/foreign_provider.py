"""The certified provider of others (`oidc-provider` from npm), as a process."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urljoin, urlsplit

import httpx

from tests.ports import held_port
from tests.waiting import HANG_SECONDS, bounded

NODE = Path(__file__).parents[2] / ".node" / "node_modules"
AUDIENCE = "https://moot.example"


@asynccontextmanager
async def foreign_provider(
    folder: Path,
    redirect: str = "http://127.0.0.1:1/back",
    token_seconds: int = 60,
    servers: Sequence[str] = (),
) -> AsyncIterator[str]:
    """Its issuer, once it answers. `servers` are MCP servers that it issues tokens for."""
    with held_port() as port:
        # Packages are found beside the script.
        script = folder / "provider.mjs"
        script.write_bytes(Path(__file__).with_suffix(".mjs").read_bytes())
        (folder / "node_modules").symlink_to(NODE)
        words = ("node", str(script), str(port), AUDIENCE, redirect, str(token_seconds), *servers)
        async with provider_process(*words, env=os.environ | {"NODE_ENV": "test"}):
            yield f"http://127.0.0.1:{port}"


@asynccontextmanager
async def provider_process(*words: str, env: Mapping[str, str] | None = None) -> AsyncIterator[None]:
    """A process from the line `ready` on, until it is killed."""
    process = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, env=env
    )
    assert process.stdout is not None
    try:
        async with bounded():
            line = await process.stdout.readline()
        assert line.startswith(b"ready"), line
        yield
    finally:
        process.kill()
        await process.wait()


_FORM: Final = re.compile(r'<form[^>]*action="([^"]*)"[^>]*>(.*?)</form>', re.DOTALL)
_INPUT: Final = re.compile(r"<input([^>]*)>")
_MAX_STEPS: Final = 20


async def sign_in_for_code(address: str, who: str, back: str = "http://127.0.0.1:1/back") -> dict[str, str]:
    """What a person does at the provider, form after form, until it sends them back; what it sends along."""
    async with httpx.AsyncClient(timeout=HANG_SECONDS) as browser:
        answer = await browser.get(address)
        for _ in range(_MAX_STEPS):
            where = answer.headers.get("location", "")
            if where.startswith(back):
                return dict(parse_qsl(urlsplit(where).query))
            if answer.is_redirect:
                answer = await browser.get(urljoin(str(answer.url), where))
                continue
            found = _FORM.search(answer.text)
            assert found is not None, answer.text
            fields = {}
            for attributes in _INPUT.findall(found[2]):
                named = re.search(r'name="([^"]+)"', attributes)
                value = re.search(r'value="([^"]*)"', attributes)
                if named is not None:
                    fields[named[1]] = value[1] if value is not None else ""
            fields |= {name: who for name in ("login", "password") if name in fields}
            target = urljoin(str(answer.url), found[1].replace("&amp;", "&"))
            answer = await browser.post(target, data=fields)
    raise AssertionError("the provider asks and asks")
