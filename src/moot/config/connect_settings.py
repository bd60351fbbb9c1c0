"""Where a person's command finds its gateway, and as whom it comes in.

What is said outright wins, then the environment, then the space in the current folder:

    --gateway     MOOT_URL                      of the gateway that runs there, else host and port
    --space       MOOT_SPACE                    the only space there
    --token-file  MOOT_TOKEN_FILE, MOOT_TOKEN   of --as, of default_participant, or of the only person

A configuration's tokens go to the configuration's own gateway and nowhere else, so MOOT_URL alone changes
nothing.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from moot.config.secrets.secret import Secret
from moot.errors import UsageError
from moot.private_files import FileToken, name_from, token_from

if TYPE_CHECKING:
    from moot.config.configuration import Configuration, SpaceSettings
    from moot.config.gateway_config import GatewayConfig

log = logging.getLogger(__name__)


class TokenFile:
    """Called, it gives the token that is in the file now; while that cannot be read, the last one."""

    def __init__(self, path: Path, token: str) -> None:
        """`token` is what was in it a moment ago."""
        self._path = path
        self._token = token
        self._seen = self._look()

    def __call__(self) -> str:
        seen = self._look()
        if seen is not None and seen != self._seen:
            self._seen = seen
            try:
                self._token = token_from(self._path)
            except UsageError as fault:
                log.warning("the token stays as it was", extra={"why": str(fault)})
        return self._token

    def _look(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size


# In the order in which they are looked for; the last is where the reference implementation keeps its own.
CONFIG_NAMES: Final = ("moot.yaml", "space.yaml", ".mew/space.yaml")
# What `moot up` writes while it runs, under the data folder: its address and its process.
RUN_FILE: Final = Path("run/up.json")
# The running gateway's, there too; its time is that at which the gateway last read its configuration.
GATEWAY_FILE: Final = Path("run/gateway.json")
# In the folder of a space that was made at run time: after which space of the file.
LIKE_FILE: Final = "like"
# That of the administrator whom `moot up --cluster` adds, under the data folder.
CLUSTER_TOKEN_FILE: Final = Path("admin/cluster.token")

URL: Final = "MOOT_URL"
SPACE: Final = "MOOT_SPACE"
PARTICIPANT: Final = "MOOT_PARTICIPANT"
TOKEN: Final = "MOOT_TOKEN"
TOKEN_FILE: Final = "MOOT_TOKEN_FILE"
PERSONAL_VARIABLES: Final = frozenset((URL, SPACE, PARTICIPANT, TOKEN, TOKEN_FILE))


class CliOverrides(msgspec.Struct, frozen=True, kw_only=True):
    """What a command was told outright; None is nothing."""

    gateway: str | None = None
    space: str | None = None
    token_file: Path | None = None
    name: str | None = None
    config: Path | None = None


class ConnectSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where to go, with what."""

    url: str
    # Empty: the gateway's own choice.
    space: str
    token: Secret
    # Where the token came from, if another program may replace it there.
    token_file: Path | None = None
    # Known where the token came from a configuration.
    participant: str | None = None
    # Whose token it seems to be, for gateways that do not know it.
    name: str | None = None
    # Whom chat goes to unless something else is said.
    default_to: tuple[str, ...] = ()

    @property
    def token_source(self) -> TokenFile | str:
        """The token, for programs that stay: that of a file is read again when it is replaced."""
        token = self.token.reveal()
        return token if self.token_file is None else TokenFile(self.token_file, token)


def find_config(folder: Path) -> Path | None:
    """The configuration of the space in this folder."""
    return next((folder / name for name in CONFIG_NAMES if (folder / name).is_file()), None)


def connect_settings(asked: CliOverrides, *, environ: Mapping[str, str], folder: Path) -> ConnectSettings:
    """Put together what was asked for; raises UsageError saying what is missing and how to give it."""
    file = asked.token_file or (Path(environ[TOKEN_FILE]) if environ.get(TOKEN_FILE) else None)
    token = Secret(environ[TOKEN]) if environ.get(TOKEN) else None
    if asked.name is not None:
        if asked.token_file is not None:
            raise UsageError("--as and --token-file exclude each other: a token says whose it is")
        file = token = None
    name = environ.get(PARTICIPANT) if token is not None else None
    if file is not None:
        token = Secret(token_from(file))
        name = name_from(file)
    url = asked.gateway or environ.get(URL)
    space = asked.space or environ.get(SPACE) or ""
    if url is not None and token is not None:
        return ConnectSettings(url=url, space=space, token=token, token_file=file, name=name)
    if asked.gateway is not None:
        raise UsageError("--gateway needs --token-file FILE: the token that it let you have")
    return _from_config(asked, environ, folder, token)


def admin_settings(
    asked: CliOverrides, token: Secret, *, environ: Mapping[str, str], folder: Path
) -> ConnectSettings:
    """For a request of an administrator, who is no participant; raises UsageError saying what is missing."""
    path = asked.config or find_config(folder)
    # The token was named outright and is nothing of this folder, unless its configuration was, too.
    url = asked.gateway or (environ.get(URL) if asked.config is None else None)
    space = asked.space or environ.get(SPACE)
    if url is not None:
        return ConnectSettings(url=url, space=space or "", token=token)
    if path is None:
        raise UsageError(
            "--gateway URL is missing: the address of the gateway; or run this in the folder of its moot.yaml"
        )
    from moot.config.loader import load

    configuration = load(path, environ=environ, dry=True, unset={})
    url = address_of(configuration.gateway)
    return ConnectSettings(url=url, space=_space(configuration, space, path)[0], token=token)


def cluster_settings(*, environ: Mapping[str, str], folder: Path) -> tuple[str, Path | None] | None:
    """The addresses of the cluster in this folder, and the file of an administrator's token if it has one.

    None: there is no configuration.
    """
    path = find_config(folder)
    if path is None:
        return None
    from moot.config.loader import load

    configuration = load(path, environ=environ, dry=True, unset={})
    gateway = configuration.gateway
    files = [*configuration.admin_token_files.values(), gateway.data / CLUSTER_TOKEN_FILE]
    file = next((each for each in files if each.is_file()), None)
    others = gateway.cluster.addresses if gateway.cluster is not None else ()
    return ",".join((address_of(gateway), *others)), file


def tokens_of(settings: SpaceSettings, name: str, secrets: Mapping[str, Secret]) -> Iterator[Secret]:
    """The tokens with which a participant has all its rights, as far as they were read."""
    for hash in settings.config.participants[name].credentials:
        if settings.tokens[hash].capabilities is None and hash in secrets:
            yield secrets[hash]


def token_of(settings: SpaceSettings, name: str, secrets: Mapping[str, Secret]) -> Secret | None:
    """The first of these, if there is one."""
    return next(tokens_of(settings, name, secrets), None)


def address_of(gateway: GatewayConfig) -> str:
    """How this gateway is reached from its own machine; one that runs says it itself."""
    from moot.config.gateway_config import bracketed, is_wildcard

    running = read_run_file(gateway.data)
    if running is not None:
        return str(running["url"])
    # Started with another port: what listens on that of the file is not sent the tokens of this folder.
    served = _served_at(gateway.data)
    if served is not None:
        return served
    if gateway.tls is not None and gateway.tls.local_port:
        return f"http://127.0.0.1:{gateway.tls.local_port}"
    if not gateway.port:
        raise UsageError("the gateway takes any free port: give its address with --gateway and --token-file")
    host = "127.0.0.1" if is_wildcard(gateway.host) else gateway.host
    return f"{gateway.scheme}://{bracketed(host)}:{gateway.port}"


def read_run_file(data: Path) -> Mapping[str, Any] | None:
    """What the `moot up` that runs on this data folder wrote; None if none runs."""
    try:
        running = json.loads((data / RUN_FILE).read_text("utf-8"))
        os.kill(running["pid"], 0)
    except PermissionError:
        # Somebody else's process: it is there.
        return running if isinstance(running.get("url"), str) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return running if isinstance(running.get("url"), str) else None


def _served_at(data: Path) -> str | None:
    """The address that the `moot serve` on this data folder wrote; None if none runs."""
    try:
        with (data / GATEWAY_FILE).open("rb") as opened:
            with suppress(BlockingIOError):
                # It holds the lock for as long as it runs.
                fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return None
            url = json.loads(opened.read()).get("url")
    except (OSError, ValueError, AttributeError):
        return None
    return url if isinstance(url, str) else None


# From a configuration


def _from_config(
    asked: CliOverrides, environ: Mapping[str, str], folder: Path, token: Secret | None
) -> ConnectSettings:
    path = asked.config or find_config(folder)
    if path is None:
        raise UsageError(
            "no space here: run this in the folder of a moot.yaml or space.yaml (`moot init` makes one),"
            " or give --gateway URL and --token-file FILE"
        )
    secrets: dict[str, Secret] = {}
    # Not the secrets of others: whoever starts an agent need not give it those of a person.
    unset: dict[str, str] = {}
    from moot.config.loader import load

    configuration = load(path, environ=environ, dry=True, secrets=secrets, unset=unset)
    name, settings = _space(configuration, asked.space or environ.get(SPACE), path)
    if token is not None:
        return ConnectSettings(url=address_of(configuration.gateway), space=name, token=token)
    person = asked.name or settings.default_participant or _only_person(settings, path)
    if person not in settings.config.participants:
        raise UsageError(f"{path}: no participant {person}: {_names(settings.config.participants)}")
    own = token_of(settings, person, secrets)
    if own is None:
        raise UsageError(_why_no_token(settings, person, unset, path))
    member = settings.members.get(person)
    return ConnectSettings(
        url=address_of(configuration.gateway),
        space=name,
        token=_with_age(own, configuration.gateway.data),
        participant=person,
        name=person,
        default_to=member.default_to if member is not None else (),
    )


def _with_age(own: Secret, data: Path) -> Secret:
    """The token, with whether its file was written after the gateway last read its configuration."""
    token = own.reveal()
    if not isinstance(token, FileToken):
        return own
    try:
        # Not the time of its content, which a copy may keep.
        is_unread = token.file.stat().st_ctime_ns > (data / GATEWAY_FILE).stat().st_mtime_ns
    except OSError:
        return own
    return Secret(FileToken(token, token.file, is_unread=is_unread))


def _why_no_token(settings: SpaceSettings, name: str, unset: Mapping[str, str], path: Path) -> str:
    hashes = settings.config.participants[name].credentials
    missing = [unset[hash] for hash in hashes if hash in unset]
    if missing:
        return f"{path}: {missing[0]}"
    if name in settings.token_files:
        return f'No token for "{name}" yet: it is made when the gateway starts for the first time (`moot up`)'
    if hashes:
        return f"{path}: {name} has no token with all of its rights: give one with --token-file FILE"
    return (
        f"{path}: {name} has no token, and none is made where tokens: is empty. Remove that line, or give a"
        " token with --token-file FILE"
    )


def _space(configuration: Configuration, asked: str | None, path: Path) -> tuple[str, SpaceSettings]:
    """Its name, and its settings; for one that was made at run time, those of its model."""
    if asked is not None:
        for name, settings in configuration.spaces.items():
            if asked in (name, settings.other_name):
                return name, settings
        model = configuration.spaces.get(_model_of(configuration.gateway, asked))
        if model is not None:
            return asked, model
        raise UsageError(f"{path}: no space {asked}: {_names(configuration.spaces)}")
    chosen = configuration.default_space
    if chosen is None:
        raise UsageError(f"--space NAME is missing: {_names(configuration.spaces)}")
    return chosen, configuration.spaces[chosen]


def _model_of(gateway: GatewayConfig, space: str) -> str:
    """After which space of the file one was made while the gateway of this folder ran; empty if none was."""
    from moot.config.loader import is_space_name

    if not is_space_name(space):
        return ""
    try:
        return (gateway.data / "spaces" / space / LIKE_FILE).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _only_person(settings: SpaceSettings, path: Path) -> str:
    """Whoever is not started by `moot up` and is no file is a person, as far as a configuration tells."""
    people = [
        name
        for name in settings.config.participants
        if name not in settings.output_logs and not _is_started(settings, name)
    ]
    if len(people) == 1:
        return people[0]
    whom = people or list(settings.config.participants)
    raise UsageError(f"--as NAME is missing, and {path.name} has no default_participant: {_names(whom)}")


def _is_started(settings: SpaceSettings, name: str) -> bool:
    member = settings.members.get(name)
    return member is not None and (member.command is not None or member.mcp_server is not None)


def _names(names: Sequence[str] | Mapping[str, object]) -> str:
    return f"there is {', '.join(names)}" if names else "there is none"
