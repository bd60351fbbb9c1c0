"""Secrets of an MCP server by name: where each comes from, and where it may go."""

from __future__ import annotations

from typing import Final

import msgspec

from moot.config.box_config import read_hosts
from moot.config.secrets.env_file import is_variable_name
from moot.config.section_reader import at, mapping, read_struct, strings
from moot.errors import UsageError
from moot.protocol.operation import Json


class SecretConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where a value comes from, each time that it is needed, and which tools may be called with it."""

    # One of these: a variable of ours, an entry SERVICE/USER of the system's keyring, a file for our user
    # alone, or a program that prints it.
    env: str | None = None
    keyring: str | None = None
    file: str | None = None
    command: tuple[str, ...] = ()
    # Tools whose arguments may name it; none: only variables and headers of the server do.
    tools: tuple[str, ...] = ()
    # Hosts whose requests get it on the way out of the box, over plain HTTP; then the server never has it.
    hosts: tuple[str, ...] = ()


def read_secrets(value: Json, path: str) -> dict[str, SecretConfig]:
    """The secrets by name; raises UsageError."""
    found = {}
    for name, settings in mapping(value, path).items():
        place = at(path, name)
        if not is_variable_name(name):
            raise UsageError(f"{place}: a secret is called as a variable is: letters, digits and _")
        secret = read_struct(SecretConfig, settings, place, _READERS)
        if sum(map(bool, (secret.env, secret.keyring, secret.file, secret.command))) != 1:
            raise UsageError(
                f"{place}: has to hold one of env, keyring, file and command, where its value comes from"
            )
        if secret.keyring is not None and "/" not in secret.keyring:
            raise UsageError(f"{at(place, 'keyring')}: is SERVICE/USER, as the keyring has it")
        if secret.hosts and (secret.tools or any("*" in each for each in secret.hosts)):
            raise UsageError(f"{place}: hosts are exact names, and stand without tools")
        found[name] = secret
    return found


def _words(value: Json, path: str) -> tuple[str, ...]:
    return tuple(strings(value, path))


_READERS: Final = {"command": _words, "tools": _words, "hosts": read_hosts}
