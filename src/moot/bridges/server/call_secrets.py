"""Secrets of a bridged server: put in at the last moment, and taken out of whatever comes back.

Members write `{{secret:NAME}}`; so does every proposal, journal and page. The bridge alone knows the value.
It puts it into calls of tools that the operator bound it to, and into variables and headers of the server,
and masks it in results, errors, notifications and stderr: as it is, reversed, and in common encodings.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import quote, quote_plus

from moot.config.secret import SecretConfig
from moot.errors import McpError, UsageError
from moot.mcp.eras import JsonObject
from moot.mcp.upstream import Server, StdioServer
from moot.private_files import read_secret
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INVALID_PARAMS
from moot.resilience.child_process import start_child

_PLACEHOLDER = re.compile(r"\{\{secret:([A-Za-z_][A-Za-z0-9_]*)\}\}", re.ASCII)
# A shorter one would be found in text that has nothing to do with it.
MIN_CHARS: Final = 8
# What a keyring or a vault takes, with somebody who unlocks it.
COMMAND_SECONDS: Final = 60.0
MAX_BYTES: Final = 64 << 10


class CallSecrets:
    """The secrets of one server."""

    def __init__(self, secrets: Mapping[str, SecretConfig], folder: Path, environ: Mapping[str, str]) -> None:
        self._secrets = secrets
        self._folder = folder
        self._environ = environ
        # Every value that was used, also after it was changed: the server may still know it.
        self._used: dict[str, str] = {}
        self._mask: re.Pattern[str] | None = None
        self._names: dict[str, str] = {}

    async def fill_server(self, server: Server) -> Server:
        """The server with the values in its variables or headers; raises UsageError."""
        if isinstance(server, StdioServer):
            env = {name: await self._fill(value) for name, value in server.command.env.items()}
            return replace(server, command=replace(server.command, env=env), mask_stderr=self._mask_bytes)
        headers = {name: await self._fill(value) for name, value in server.headers.items()}
        return replace(server, headers=headers)

    async def fill_call(self, params: JsonObject) -> JsonObject:
        """A call with the values in its arguments; raises McpError for a secret that is not for this tool."""
        named = set(_PLACEHOLDER.findall(json.dumps(params, ensure_ascii=False)))
        if not named:
            return params
        tool = params.get("name")
        for name in sorted(named):
            if name not in self._secrets or tool not in self._secrets[name].tools:
                text = f"the secret {name} is not for this tool: whoever runs this bridge lists its tools"
                raise McpError(INVALID_PARAMS, text)
        try:
            values = {name: await self._value(name) for name in named}
        except UsageError as fault:
            raise McpError(INVALID_PARAMS, str(fault)) from None

        def put(text: str) -> str:
            return _PLACEHOLDER.sub(lambda found: values[found[1]], text)

        return params | {"arguments": _map_texts(params.get("arguments"), put)}

    def mask(self, value: Json) -> Json:
        """The same without any value of a secret, whatever it is written as."""
        pattern = self._mask
        if pattern is None:
            return value
        return _map_texts(value, lambda text: pattern.sub(self._placeholder, text))

    def _mask_bytes(self, line: bytes) -> bytes:
        return str(self.mask(line.decode("utf-8", "surrogateescape"))).encode("utf-8", "surrogateescape")

    def _placeholder(self, found: re.Match[str]) -> str:
        return f"{{{{secret:{self._names.get(found[0].lower(), 'VALUE')}}}}}"

    async def _fill(self, text: str) -> str:
        for name in set(_PLACEHOLDER.findall(text)):
            if name not in self._secrets:
                raise UsageError(f"there is no secret {name}: list it under secrets of this server")
            text = text.replace(f"{{{{secret:{name}}}}}", await self._value(name))
        return text

    async def _value(self, name: str) -> str:
        secret = self._secrets[name]
        if secret.env is not None:
            value = self._environ.get(secret.env, "")
        elif secret.file is not None:
            file = self._folder / Path(secret.file).expanduser()
            value = read_secret(file, max_bytes=MAX_BYTES, what="a secret").decode("utf-8", "replace")
        else:
            value = await self._printed(name, secret.command)
        value = value.strip()
        if len(value) < MIN_CHARS:
            # Its own words may tell it.
            raise UsageError(f"the secret {name} has no value of at least {MIN_CHARS} characters")
        if value not in self._used:
            self._used[value] = name
            self._names |= {form.lower(): name for form in _forms(value)}
            forms = {form for used in self._used for form in _forms(used)}
            longest_first = map(re.escape, sorted(forms, key=len, reverse=True))
            self._mask = re.compile("|".join(longest_first), re.IGNORECASE)
        return value

    async def _printed(self, name: str, command: tuple[str, ...]) -> str:
        printed = bytearray()
        child = await start_child(
            command,
            environment=self._environ,
            cwd=self._folder,
            on_stdout=printed.extend,
            on_stderr=lambda _data: None,
        )
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                await asyncio.wait([child.ended])
        except TimeoutError:
            raise UsageError(f"the command of the secret {name} has not ended in time") from None
        finally:
            child.kill()
        if child.ended.result().code != 0 or len(printed) > MAX_BYTES:
            raise UsageError(f"the command of the secret {name} failed: {child.ended.result()}")
        return printed.decode("utf-8", "replace")


def _forms(value: str) -> Iterator[str]:
    """A value in the ways in which it may come back. Upper and lower case are found alike."""
    for text in (value, value[::-1]):
        plain = text.encode()
        yield text
        yield quote(text, safe="")
        yield quote(text)
        yield quote_plus(text)
        yield json.dumps(text)[1:-1]
        yield json.dumps(text, ensure_ascii=False)[1:-1]
        yield plain.hex()
        for offset in range(3):
            # Inside of a longer text: those letters that depend on the value alone.
            padded = b"\0" * offset + plain
            first, last = -(-offset * 8 // 6), len(padded) * 8 // 6
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                yield encode(padded).decode()[first:last]


def _map_texts(value: Json, change: Callable[[str], str]) -> Json:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_map_texts(each, change) for each in value]
    if isinstance(value, dict):
        return {change(key): _map_texts(each, change) for key, each in value.items()}
    return value
