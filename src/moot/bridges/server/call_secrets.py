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
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import quote, quote_plus

from moot.box.host_rules import read_rules
from moot.config.secrets.secret_config import SecretConfig
from moot.config.secrets.sign_in_store import usable_keyring
from moot.errors import McpError, UsageError
from moot.mcp.eras import JsonObject
from moot.mcp.upstream import Server, StdioServer
from moot.participant import Member
from moot.private_files import read_secret
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INVALID_PARAMS
from moot.protocol.strict_json import map_texts
from moot.resilience.child_process import start_child

_PLACEHOLDER = re.compile(r"\{\{secret:([A-Za-z_][A-Za-z0-9_]*)\}\}", re.ASCII)
_HEAD_PLACEHOLDER = re.compile(_PLACEHOLDER.pattern.encode())
# A shorter one would be found in text that has nothing to do with it.
MIN_CHARS: Final = 8
# What a keyring or a vault takes, with somebody who unlocks it.
COMMAND_SECONDS: Final = 60.0
# Whoever may request this of the bridge may use its secrets (decision 0273).
USE_SECRET: Final = "moot/use-secret"
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
        named = {name for name in named_secrets(params) if not self._is_for_hosts(name)}
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
            return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text)

        return params | {"arguments": map_texts(params.get("arguments"), put)}

    async def fill_head(self, host: str, port: int, head: bytes) -> bytes:
        """The head of a plain HTTP request with the values for its host; raises UsageError for others."""
        named = {found.decode() for found in _HEAD_PLACEHOLDER.findall(head)}
        for name in sorted(named):
            if name not in self._secrets or not read_rules(self._secrets[name].hosts).allows(host, port):
                raise UsageError(f"the secret {name} is not for {host}:{port}")
            value = await self._value(name)
            if not value.isprintable():
                raise UsageError(f"the secret {name} has characters that no header can have")
            head = head.replace(f"{{{{secret:{name}}}}}".encode(), value.encode())
        return head

    def _is_for_hosts(self, name: str) -> bool:
        return name in self._secrets and bool(self._secrets[name].hosts)

    def check_box(self, *, has_box: bool) -> None:
        """Raises UsageError for secrets that only a box can put in, where there is none."""
        if not has_box and (names := [name for name in self._secrets if self._is_for_hosts(name)]):
            raise UsageError(f"secrets with hosts need a box: {', '.join(names)}")

    def mask(self, value: Json) -> Json:
        """The same without any value of a secret, whatever it is written as."""
        pattern = self._mask
        if pattern is None:
            return value
        return map_texts(value, lambda text: pattern.sub(self._placeholder, text))

    def _mask_bytes(self, line: bytes) -> bytes:
        return str(self.mask(line.decode("utf-8", "surrogateescape"))).encode("utf-8", "surrogateescape")

    def _placeholder(self, found: re.Match[str]) -> str:
        return f"{{{{secret:{self._names.get(found[0].lower(), 'VALUE')}}}}}"

    async def _fill(self, text: str) -> str:
        for name in set(_PLACEHOLDER.findall(text)):
            if name not in self._secrets:
                raise UsageError(f"there is no secret {name}: list it under secrets of this server")
            if self._is_for_hosts(name):
                continue
            text = text.replace(f"{{{{secret:{name}}}}}", await self._value(name))
        return text

    async def _value(self, name: str) -> str:
        secret = self._secrets[name]
        if secret.env is not None:
            value = self._environ.get(secret.env, "")
        elif secret.keyring is not None:
            # In a thread: somebody may have to unlock it.
            value = await asyncio.to_thread(_from_keyring, name, secret.keyring)
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


def named_secrets(params: JsonObject) -> set[str]:
    """The secrets that a call names."""
    return set(_PLACEHOLDER.findall(json.dumps(params, ensure_ascii=False)))


def check_use(params: JsonObject, caller: Member | None, bridge: str) -> None:
    """Raises McpError if the caller has no right to use a secret that the call names."""
    for name in sorted(named_secrets(params)):
        asked: JsonObject = {"method": USE_SECRET, "params": {"name": name}}
        if caller is None or not caller.may("mcp/request", asked, [bridge]):
            text = f"you may not use the secret {name}: propose the call, or ask for the right {USE_SECRET}"
            raise McpError(INVALID_PARAMS, text)


def _from_keyring(name: str, entry: str) -> str:
    found = usable_keyring()
    if found is None:
        raise UsageError(f"the secret {name} is in the keyring, and there is none here (moot[keyring])")
    service, _, user = entry.rpartition("/")
    try:
        return str(found.get_password(service, user) or "")
    except Exception as fault:  # noqa: BLE001  # each keyring has errors of its own
        raise UsageError(f"the keyring does not give the secret {name}: {type(fault).__name__}") from None


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
