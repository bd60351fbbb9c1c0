"""Reading `gateway.notifications` and `gateway.public_url`: strictly, without showing what is secret."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from moot.config.configuration import SpaceSettings
from moot.config.gateway_config import GatewayConfig, is_loopback
from moot.config.notification_config import NotificationsConfig, ReceiverConfig
from moot.config.secret import Secret
from moot.config.section_reader import at, checked, mapping, read_struct
from moot.config.space_reader import participant_name
from moot.config.token_source import TokenSource
from moot.errors import UsageError
from moot.protocol.operation import Json

# A receiver's name is the name of a file.
_RECEIVER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
# What may stand in a request line; a space or a line end would begin another part of the request.
_URL: Final = re.compile(r"https?://[!-~]{1,2000}", re.ASCII | re.IGNORECASE)
# Signs that end a link in a mail or in Slack.
_PUBLIC_URL: Final = re.compile(r"https?://[^\s<>|\"'`\\^{}#?@]{1,500}", re.ASCII | re.IGNORECASE)
# What is read with the settings, but is none.
_NOT_SETTINGS: Final = ("url", "secret")
# As many bits as a token of Moot carries at least; the signature is worth no more than its key.
_MIN_SECRET_CHARS: Final = 24


def read_notifications(
    value: Json, path: str, folder: Path, environ: Mapping[str, str]
) -> NotificationsConfig:
    """The section with what its files and variables hold; raises UsageError."""
    secrets = TokenSource(Path(), environ)

    def read_receivers(value: Json, path: str) -> dict[str, ReceiverConfig]:
        return {
            name: _read_receiver(name, each, at(path, name), folder, secrets)
            for name, each in mapping(value, path).items()
        }

    return read_struct(NotificationsConfig, value, path, {"receivers": read_receivers})


def read_public_url(value: Json, path: str) -> str | None:
    if value is None:
        return None
    text: str = checked(value, str, "a URL, as in https://moot.example.org", path)
    if _PUBLIC_URL.fullmatch(text) is None or not _parts_of(text, path).hostname:
        raise UsageError(f"{path}: must be a URL as https://moot.example.org, without ? and #")
    return text.rstrip("/")


def notification_notes(gateway: GatewayConfig, spaces: Mapping[str, SpaceSettings]) -> Iterator[str]:
    """What can be run but is perhaps not what was meant."""
    receivers = gateway.notifications.receivers
    if receivers and gateway.public_url is None:
        yield (
            "gateway.public_url: is not set, so notifications have no link to the proposal;"
            " name the address at which people open the console"
        )
    for name, receiver in receivers.items():
        here = at("gateway.notifications.receivers", name)
        for space in receiver.spaces or ():
            if space not in spaces and not gateway.auto_create_spaces:
                yield f"{here}.spaces: there is no space {space}"
        chosen = [each for space, each in spaces.items() if space in (receiver.spaces or spaces)]
        if not any(receiver.participant in each.config.participants for each in chosen):
            yield f"{here}.participant: none of its spaces names {receiver.participant}; is nobody missing?"
        if receiver.url is not None:
            parts = urlsplit(receiver.url.reveal())
            if parts.scheme.lower() == "http" and not is_loopback(parts.hostname or ""):
                yield f"{here}: its URL begins with http, so notifications can be read on the way"


def _read_receiver(name: str, value: Json, path: str, folder: Path, secrets: TokenSource) -> ReceiverConfig:
    if _RECEIVER_NAME.fullmatch(name) is None:
        raise UsageError(
            f"{path}: a receiver's name has 1 to 64 letters, digits, '.', '_' or '-',"
            " and starts with a letter or digit"
        )
    section = mapping(value, path)
    for key in _NOT_SETTINGS:
        if key in section:
            raise UsageError(
                f"{path}.{key}: never in this file; {key}_file names a file that holds it,"
                f" {key}_env an environment variable"
            )
    receiver = read_struct(ReceiverConfig, section, path, {"participant": participant_name})
    url = _secret(receiver.url_env, receiver.url_file, f"{path}.url", folder, secrets)
    secret = _secret(receiver.secret_env, receiver.secret_file, f"{path}.secret", folder, secrets)
    if url is None:
        raise UsageError(f"{path}: url_file or url_env is missing: where the notifications go")
    _check_url(url, f"{path}.url")
    if secret is None:
        raise UsageError(f"{path}: secret_file or secret_env is missing: with what messages are signed")
    _check_signing_secret(secret, f"{path}.secret")
    return msgspec.structs.replace(receiver, url=_hidden(url), secret=_hidden(secret))


def _secret(
    variable: str | None, file: Path | None, path: str, folder: Path, secrets: TokenSource
) -> str | None:
    if variable is not None and file is not None:
        raise UsageError(f"{path}_env: stands beside {path.rpartition('.')[2]}_file; give one of them")
    if variable is not None:
        return secrets.environment(variable, f"{path}_env")
    return None if file is None else secrets.secret_in(folder / file, f"{path}_file")


def _check_signing_secret(secret: str, path: str) -> None:
    encoded = secret.removeprefix("whsec_")
    if len(encoded) < _MIN_SECRET_CHARS:
        raise UsageError(
            f"{path}: has {_MIN_SECRET_CHARS} characters at least: `openssl rand -hex 32` makes one"
        )
    if encoded != secret:
        try:
            base64.b64decode(encoded, validate=True)
        except ValueError:
            raise UsageError(f"{path}: behind whsec_ stands base64, and what is there is not") from None


def _hidden(text: str | None) -> Secret | None:
    return None if text is None else Secret(text)


def _check_url(url: str, path: str) -> None:
    if _URL.fullmatch(url) is None:
        raise UsageError(f"{path}: what is there is no URL: it begins with https:// and has no spaces")
    parts = _parts_of(url, path)
    if not parts.hostname:
        raise UsageError(f"{path}: the URL that is there names no host")
    if parts.username is not None or parts.password is not None:
        raise UsageError(f"{path}: the URL that is there holds a user or a password, which is not supported")


def _parts_of(url: str, path: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise UsageError(f"{path}: what is there is no URL") from None
    return parts
