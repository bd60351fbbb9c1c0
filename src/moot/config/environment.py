"""One value each from the environment: `MOOT_GATEWAY__PORT=9000` is `gateway.port: 9000`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final, get_args

import msgspec

from moot.config import former_settings
from moot.config.gateway_config import GatewayConfig
from moot.config.secrets.kept_secret import keys_of
from moot.config.section_reader import SeveralMistakes, mapping, texts_of
from moot.config.strict_yaml import read_yaml
from moot.errors import UsageError
from moot.protocol.operation import Json

PREFIX: Final = "MOOT_GATEWAY__"


def with_overrides(
    section: Mapping[str, Json], environ: Mapping[str, str]
) -> tuple[dict[str, Json], dict[str, str], list[str]]:
    """The gateway's section with the environment's values in it, where each came from, and notes.

    Values are YAML. A name that is no setting is a UsageError, as an unknown key is.
    """
    merged: dict[str, Json] = {**section}
    origins: dict[str, str] = {}
    notes: list[str] = []
    for variable in sorted(environ):
        if not variable.startswith(PREFIX):
            if variable.startswith(PREFIX[:-1]) or variable == PREFIX[:-2]:
                notes.append(f"{variable}: not read; settings are named {PREFIX}NAME, with two underscores")
            continue
        keys = variable.removeprefix(PREFIX).lower().split("__")
        _check_known(variable, keys)
        if not environ[variable].strip():
            raise UsageError(f"{variable}: is empty")
        try:
            value = read_yaml(environ[variable])
        except UsageError as fault:
            raise UsageError(f"{variable}: {fault}") from None
        _put(merged, keys, value)
        origins[".".join(["gateway", *keys])] = variable
    return merged, origins, notes


def blamed(fault: UsageError, origins: Mapping[str, str]) -> UsageError:
    """The fault, saying which variable or option set the value that each mistake is about."""
    texts = []
    for text in texts_of(fault):
        origin = origins.get(text.partition(":")[0].partition("[")[0])
        texts.append(f"{text} (set by {origin})" if origin else text)
    return SeveralMistakes(texts)


def _check_known(variable: str, keys: list[str]) -> None:
    if f"gateway.{'.'.join(keys)}" in former_settings.MOOT:
        return
    struct: type[msgspec.Struct] | None = GatewayConfig
    for index, key in enumerate(keys):
        fields = (
            {}
            if struct is None
            else {key: f.type for f in msgspec.structs.fields(struct) for key in keys_of(f)}
        )
        if key not in fields:
            close = difflib.get_close_matches(key, fields, n=1)
            hint = f"; did you mean {PREFIX}{'__'.join([*keys[:index], close[0]]).upper()}?" if close else ""
            raise UsageError(f"{variable}: no such setting{hint}")
        if key in ("admin_tokens", "receivers"):
            # Behind it are names that only the configuration knows.
            return
        struct = _struct_in(fields[key])


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    for part in (kind, *get_args(kind)):
        if isinstance(part, type) and issubclass(part, msgspec.Struct):
            return part
    return None


def _put(section: dict[str, Json], keys: list[str], value: Json) -> None:
    for key in keys[:-1]:
        inner = section.get(key)
        if key == "journal" and isinstance(inner, str | bool):
            inner = {"mode": inner}
        # A copy: the file's own section is not ours to change.
        section[key] = {} if inner is None else dict(mapping(inner, f"gateway.{key}"))
        section = section[key]
    section[keys[-1]] = value
