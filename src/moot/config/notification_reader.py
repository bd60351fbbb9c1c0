"""Reading `gateway.notifications` and `gateway.public_url`: strictly, without showing what is secret."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from moot.config.configuration import SpaceSettings
from moot.config.gateway_config import GatewayConfig, is_loopback
from moot.config.notification_config import NotificationsConfig, PushConfig, QuietHours, ReceiverConfig
from moot.config.secrets.kept_secret import read_with_secrets
from moot.config.secrets.token_source import TokenSource
from moot.config.section_reader import at, checked, mapping, read_struct
from moot.config.space.space_reader import participant_name
from moot.errors import UsageError
from moot.protocol.operation import Json

# A receiver's name is the name of a file.
_RECEIVER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
# What may stand in a request line; a space or a line end would begin another part of the request.
_URL: Final = re.compile(r"https?://[!-~]{1,2000}", re.ASCII | re.IGNORECASE)
# Signs that end a link in a mail or in Slack.
_PUBLIC_URL: Final = re.compile(r"https?://[^\s<>|\"'`\\^{}#?@]{1,500}", re.ASCII | re.IGNORECASE)
# What a receiver needs, and what it may have, by its type.
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "webhook": ("url", "secret"),
    "ntfy": ("url",),
    "slack": ("url",),
    "email": ("address",),
}
_POSSIBLE: Final[Mapping[str, tuple[str, ...]]] = {"ntfy": ("token",)}
_MEANINGS: Final[Mapping[str, str]] = {
    "url": "where the notifications go",
    "secret": "with what messages are signed",
    "address": "to whom the notifications go",
}
_TOKEN: Final = re.compile(r"[!-~]{1,1024}", re.ASCII)
_TOPIC: Final = re.compile(r"[^/]/[A-Za-z0-9_-]{1,64}\Z", re.ASCII)
_ADDRESS: Final = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,255}", re.ASCII)
_CONTACT: Final = re.compile(r"mailto:[!-~]{3,300}|https://[!-~]{1,300}", re.ASCII)
_HOST_PATTERN: Final = re.compile(r"\*|(\*\.)?[A-Za-z0-9][A-Za-z0-9.:-]{0,252}", re.ASCII)
_TIME: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)", re.ASCII)
_MINUTES_A_DAY: Final = 24 * 60
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

    return read_struct(NotificationsConfig, value, path, {"receivers": read_receivers, "push": _read_push})


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
        place = at("gateway.notifications.receivers", name)
        for space in receiver.spaces or ():
            if space not in spaces and not gateway.auto_create_spaces:
                yield f"{place}.spaces: there is no space {space}"
        chosen = [each for space, each in spaces.items() if space in (receiver.spaces or spaces)]
        if not any(receiver.participant in each.config.participants for each in chosen):
            yield f"{place}.participant: none of its spaces names {receiver.participant}; is nobody missing?"
        if receiver.url is not None:
            parts = urlsplit(receiver.url.reveal())
            if parts.scheme.lower() == "http" and not is_loopback(parts.hostname or ""):
                yield f"{place}: its URL begins with http, so notifications can be read on the way"


def _read_receiver(name: str, value: Json, path: str, folder: Path, secrets: TokenSource) -> ReceiverConfig:
    if _RECEIVER_NAME.fullmatch(name) is None:
        raise UsageError(
            f"{path}: a receiver's name has 1 to 64 letters, digits, '.', '_' or '-',"
            " and starts with a letter or digit"
        )
    receiver = read_with_secrets(
        ReceiverConfig,
        value,
        path,
        variable=secrets.environment,
        file=lambda file, place: secrets.secret_in(folder / file, place),
        readers={"participant": participant_name, "quiet_hours": _quiet_hours},
    )
    found = {
        key: None if (kept := getattr(receiver, key)) is None else kept.reveal()
        for key in ("url", "secret", "token")
    } | {"address": receiver.address}
    needed = _NEEDED[receiver.type]
    for key, value in found.items():
        if value is None and key in needed:
            names = key if key == "address" else f"{key}_file or {key}_env"
            raise UsageError(f"{path}: {names} is missing: {_MEANINGS[key]}")
        if value is not None and key not in (*needed, *_POSSIBLE.get(receiver.type, ())):
            raise UsageError(f"{path}: {key} has no meaning for the type {receiver.type}")
    _check_found(receiver.type, found, path)
    return receiver


def _read_push(value: Json, path: str) -> PushConfig:
    push: PushConfig = read_struct(PushConfig, value, path)
    if push.contact is not None and _CONTACT.fullmatch(push.contact) is None:
        raise UsageError(
            f"{path}.contact: must be mailto:ADDRESS or an https URL, by which a push service reaches you"
        )
    for host in push.allowed_hosts:
        if _HOST_PATTERN.fullmatch(host) is None:
            raise UsageError(
                f"{path}.allowed_hosts: {host!r} is no host; *.DOMAIN stands for all hosts below a domain,"
                ' and "*" for all there are'
            )
    return push


def check_mail(gateway: GatewayConfig) -> None:
    """Raises UsageError if somebody is to be notified by mail, and there is no way to send any."""
    for name, receiver in gateway.notifications.receivers.items():
        if receiver.type == "email" and gateway.smtp is None:
            place = at("gateway.notifications.receivers", name)
            raise UsageError(f"{place}.type: e-mail goes out through gateway.smtp, which is missing")


def _check_found(type: str, found: Mapping[str, str | None], path: str) -> None:
    """That what was found can be used; no message shows it."""
    url, secret, token, address = (found[key] for key in ("url", "secret", "token", "address"))
    if url is not None:
        _check_url(url, f"{path}.url")
        if type == "ntfy" and _TOPIC.search(url) is None:
            raise UsageError(f"{path}.url: ends with the topic, as in https://ntfy.sh/TOPIC")
    if secret is not None:
        _check_signing_secret(secret, f"{path}.secret")
    if token is not None and _TOKEN.fullmatch(token) is None:
        raise UsageError(f"{path}.token: has 1 to 1024 visible ASCII characters and no spaces")
    if address is not None and _ADDRESS.fullmatch(address) is None:
        raise UsageError(f"{path}.address: must be one e-mail address, as maria@example.org")


def _quiet_hours(value: Json, path: str) -> QuietHours | None:
    if value is None:
        return None
    quiet: QuietHours = read_struct(QuietHours, value, path, {"from": _time_of_day, "to": _time_of_day})
    if quiet.start == quiet.end:
        raise UsageError(f"{path}: from and to are the same time: leave quiet_hours out to have none")
    # Loaded for those who set it: every command in the folder of a moot.yaml reads the file.
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        ZoneInfo(quiet.time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(
            f"{path}.time_zone: no such time zone is known here; it is named as Europe/Berlin or UTC"
        ) from None
    return quiet


def _time_of_day(value: Json, path: str) -> str:
    # YAML 1.1 reads a bare 22:00 as the number of its minutes.
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MINUTES_A_DAY:
        return f"{value // 60:02}:{value % 60:02}"
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise UsageError(f'{path}: must be a time of day in quotes, as "22:00"')
    return f"{int(found[1]):02}:{found[2]}"


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
