"""Opening spaces: those of the configuration at the start, others when an operator or who joins makes them.

    factory = SpaceFactory(configuration, directory, database, url=url, on_mail=mailer.send)
    await factory.open_all()

A space that is made while the gateway runs has the people, tokens and rights of one of the configuration
(D-22), and a journal of its own. `CreatedSpaces` knows of it after a restart.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from moot.config.configuration import Configuration, SpaceSettings
from moot.config.gateway_config import GatewayConfig
from moot.config.loader import is_space_name
from moot.errors import InvalidOperation, InvalidRequest, Unavailable, UsageError
from moot.gateway.access import AccessDenied, SpaceDirectory
from moot.gateway.created_spaces import (
    CLUSTER_FILE,
    CreatedSpaces,
    End,
    EndedSpace,
    describe,
    explain_ended,
)
from moot.gateway.hosting.delivery import Delivery, MessageHistory
from moot.gateway.hosting.durability import Durability
from moot.gateway.hosting.history_restore import restore_history
from moot.gateway.hosting.input_applier import InputApplier
from moot.gateway.hosting.input_order import LocalOrder
from moot.gateway.hosting.journal_durability import JournalDurability
from moot.gateway.hosting.journaled_space import HostOptions, JournaledSpace
from moot.gateway.hosting.output_log import OutputLog
from moot.gateway.hosting.space_host import SpaceHost
from moot.gateway.hosting.space_restore import restore_space
from moot.net.outbox import Outgoing
from moot.protocol.envelope import rfc3339
from moot.protocol.operation import Json
from moot.resilience.steady_clock import SteadyClock
from moot.space.config import SpaceConfig
from moot.space.config_json import save_config
from moot.space.effects import Mail
from moot.space.space import Space
from moot.store.database import Database, covered_position
from moot.store.journal import Journal
from moot.store.open_journal import open_journal

log = logging.getLogger(__name__)

# D-40: messages of a space kept for HTTP polling, for who comes by every few minutes; 8 MiB at most.
POLL_MESSAGES: Final = 1_000
POLL_BYTES: Final = 8 << 20
# Made because somebody joined them: each has a journal of its own, open files and a snapshot.
MAX_AUTO_SPACES: Final = 100
# How long a start waits for its first snapshot.
_SNAPSHOT_SECONDS: Final = 5.0


class SpaceFactory:
    """Opens the spaces of one gateway and adds them to its directory."""

    def __init__(
        self,
        configuration: Configuration,
        directory: SpaceDirectory,
        database: Database,
        *,
        url: str,
        on_mail: Callable[[Mail, str], None],
    ) -> None:
        self._configuration = configuration
        self._config: GatewayConfig = configuration.gateway
        self._directory = directory
        self._database = database
        self._url = url
        self._on_mail = on_mail
        # Files that are members, by space.
        self._outputs: dict[str, list[OutputLog]] = {}
        self._created = CreatedSpaces(configuration.gateway.data / "spaces")
        # Told of every space that is made while the gateway runs, and of every one that has ended.
        self.on_created: Callable[[SpaceHost], None] = lambda _host: None
        self.on_ended: Callable[[SpaceHost], Awaitable[None]] = nobody_asks
        # In a cluster: of one that other gateways go on serving.
        self.on_left: Callable[[SpaceHost], Awaitable[None]] = nobody_asks

    async def open_all(self) -> None:
        """Bring every space back to where it was."""
        for name, settings in self._configuration.spaces.items():
            await self.open(name, settings)
        for name, model in self._created_before():
            await self.open(name, model)
        for name, ended in self._created.ended.items():
            await self._clear(name, ended, None)
        self._let_members_create()

    def _let_members_create(self) -> None:
        if self._configuration.model_space is not None:
            self._directory.model = self._configuration.model_space
            self._directory.create = self.create

    async def open(self, name: str, settings: SpaceSettings) -> SpaceHost:
        """One space, from its snapshot and journal."""
        options, config = self._options(name, settings), self._space_config(name, settings)
        self._check_not_ended(name)
        self._leave_cluster(name)
        restored = await restore_space(options, config, self._database)
        like = self._created.models.get(name)
        if restored.is_new and like is not None:
            # Its journal did not reach the disk when it was made.
            restored.space.begin_like(self._directory.hosts[like].space)
        if isinstance(options.clock, SteadyClock):
            options.clock.advance_to(restored.latest)
        host = self._host(options, restored.space, restored.journal)
        host.journaled.snapshots.generation = restored.generation
        if restored.journal.is_written and (restored.is_new or not restored.journaled):
            # From here on the journal tells everything by itself, should all snapshots be lost.
            host.record_state("a new space" if restored.is_new else "the journal was off")
        if not restored.is_new:
            restore_history(host.delivery.history, options.folder, config)
            _resume(host, config)
        _begin(host)
        # A disk that fails is waited for no longer: then the space opens, and says that it is degraded.
        with suppress(TimeoutError):
            async with asyncio.timeout(_SNAPSHOT_SECONDS):
                await asyncio.shield(host.journaled.save_snapshot())
        if name in self._configuration.spaces:
            self._add_outputs(host, settings)
        self._add_to_directory(name, host, self._configuration.spaces.get(name))
        log.info("space open", extra={"space": name, "replayed": restored.replayed})
        return host

    def _leave_cluster(self, name: str) -> None:
        """Whatever happens alone is not in the cluster's log: from now on this journal is no copy of it."""
        mark = self._folder(name) / CLUSTER_FILE
        if mark.exists():
            mark.unlink()
            log.warning("a copy of a cluster's space goes on alone", extra={"space": name})

    def create(self, name: str) -> SpaceHost | AccessDenied:
        """A space that was not there before; whoever asks has been let into its model."""
        return self._refuse_new(name) or self._make(name, self._configuration.model_space or "")

    def _refuse_new(self, name: str) -> AccessDenied | None:
        """Why nobody who joins may make a space of that name here."""
        refusal = self._why_not(name)
        if refusal is not None:
            return AccessDenied(404, f"no space {name[:64]!r} on this gateway: {refusal}")
        if len(self._directory.hosts.keys() - self._configuration.spaces.keys()) < MAX_AUTO_SPACES:
            return None
        return AccessDenied(
            503, f"this gateway has made {MAX_AUTO_SPACES} spaces, as many as it may: join one of them"
        )

    async def create_space(self, name: str, like: str | None, by: str) -> str:
        like = self._model_for(name, like)
        made = self._make(name, like)
        if isinstance(made, AccessDenied):
            raise Unavailable(made.message)
        log.info("space made by an administrator", extra={"space": name, "by": by})
        return like

    def _model_for(self, name: str, like: str | None) -> str:
        """After which space one is made. Raises InvalidRequest, and InvalidOperation if there can be none."""
        known = self._configuration
        like = like or known.model_space or known.default_space
        hosts, serves = self._directory.hosts, self._directory.serves
        if like is None or like not in known.spaces or (like not in hosts and serves(like)):
            named = ", ".join(known.spaces)
            raise InvalidRequest(f"name the space of the file after which it is made (like): {named}")
        refusal = self._why_not(name)
        if refusal is not None:
            raise InvalidOperation(f"space {name[:64]!r} cannot be made: {refusal}")
        return like

    def _why_not(self, name: str) -> str | None:
        """Why there can be no new space of this name; None if there can."""
        if not is_space_name(name):
            return "a name has up to 64 letters, digits and ._- and begins with a letter or digit"
        ended = self._created.ended.get(name)
        if ended is not None:
            return explain_ended(name, ended)
        if name in self._directory.hosts or name in self._directory.other_names:
            return "there is one"
        if self._folder(name).exists() or covered_position(self._database.path, name) is not None:
            # What was said there was said among others; all that are ours were opened at the start.
            return "one of that name was here before"
        return None

    def _make(self, name: str, like: str) -> SpaceHost | AccessDenied:
        settings, folder = self._configuration.spaces[like], self._folder(name)
        try:
            self._created.note_created(name, like)
            options = self._options(name, settings)
            journal = open_journal(options.folder, options.journal)
        except (OSError, UsageError) as fault:
            # Or half of it would stand in the way of the next try.
            self._created.models.pop(name, None)
            shutil.rmtree(folder, ignore_errors=True)
            log.error("space not created", extra={"space": name, "fault": str(fault)})
            return AccessDenied(503, "the space cannot be created now: try again later")
        host = self._host(options, self._new_space(name, like), journal)
        if journal.is_written:
            host.record_state("a new space")
        _begin(host)
        self._add_to_directory(name, host, None)
        log.info("space created", extra={"space": name, "like": like})
        self.on_created(host)
        return host

    def _new_space(self, name: str, like: str) -> Space:
        """One with the people that its model has now."""
        model = self._directory.hosts[like].space
        url = self._space_config(name, self._configuration.spaces[like]).connection_url
        space = Space(msgspec.structs.replace(model.state.config, name=name, connection_url=url))
        space.begin_like(model)
        return space

    async def end_space(self, name: str, how: End, by: str) -> None:
        self._created.check_may_end(name, how, self._configuration.spaces)
        ended = EndedSpace(how, by, rfc3339(time.time()))
        try:
            self._created.note_ended(name, ended)
        except OSError as fault:
            raise Unavailable(f"nothing was changed: {fault.strerror}") from None
        await self._clear(name, ended, self._let_go(name, ended))
        if how == "deleted" and self._created.has_files(name):
            raise Unavailable(
                f"space {name!r} is closed, but not all of it is removed yet: the gateway's log says why. "
                "Delete it again, or restart the gateway"
            )

    def _let_go(self, name: str, ended: EndedSpace) -> SpaceHost | None:
        """Close the connections to a space; nothing happens in it from now on."""
        host = self._directory.hosts.pop(name, None)
        if host is not None:
            log.warning("space ended", extra={"space": name, "ended": ended.ended, "by": ended.by})
            host.end(f"this space was {ended.ended}")
        return host

    async def _clear(self, name: str, ended: EndedSpace, host: SpaceHost | None) -> None:
        """Let go of the files of a space that has ended; what fails is done at the next start."""
        if host is not None:
            await host.stop()
            await self.on_ended(host)
        if ended.ended == "deleted" and self._created.has_files(name):
            try:
                await self._database.forget(name)
                await asyncio.to_thread(self._created.remove_files, name)
            except (OSError, sqlite3.Error) as fault:
                log.error("deleted space is not removed yet", extra={"space": name, "fault": str(fault)})

    def _check_not_ended(self, name: str) -> None:
        ended = self._created.ended.get(name)
        if ended is not None:
            raise UsageError(
                f"{explain_ended(name, ended)}: take it out of the file, or move {self._folder(name)} away "
                "to begin a new one"
            )
        if name in self._configuration.spaces:
            self._created.note_configured(name)

    def describe_spaces(self) -> list[dict[str, Json]]:
        return describe(self._directory.hosts, self._created.models, self._ended())

    def _ended(self) -> dict[str, EndedSpace]:
        return self._created.ended

    def reload(self, configuration: Configuration) -> list[str]:
        """Take over participants, capabilities and rules of spaces that run; returns what needs a restart."""
        notes = []
        hosts = self._directory.hosts
        for name, host in hosts.items():
            like = self._created.models.get(name, name)
            settings = configuration.spaces.get(name) or configuration.spaces.get(like)
            if settings is None and like != name:
                notes.append(
                    f"space {name} was made after {like}, which is gone from the configuration: it goes on "
                    "as it is, and is not opened again after a restart"
                )
                continue
            if settings is None:
                notes.append(f"space {name} is gone from the configuration: restart to close it")
                continue
            host.rights.reload(self._space_config(name, settings))
            if name in configuration.spaces:
                self._set_other_name(name, settings)
            self._directory.end_excluded(host)
        for name in configuration.spaces:
            if not self._directory.serves(name):
                notes.append(f"space {name} is not served here now: reload a gateway that serves it")
            elif name not in hosts:
                notes.append(f"space {name} is new: restart to open it")
        return notes

    async def close(self) -> None:
        """Everything on disk."""
        # Together: a disk that does not answer must not be waited for once a space.
        await asyncio.gather(*(host.stop() for host in self._directory.hosts.values()))
        for name in list(self._outputs):
            self._close_outputs(name)

    # What a space is made of

    def _created_before(self) -> list[tuple[str, SpaceSettings]]:
        """Spaces that were made while a gateway ran on this folder, and their settings."""
        found = []
        for name, like in self._created.models.items():
            model = self._configuration.spaces.get(like)
            if name in self._configuration.spaces:
                continue
            if model is None:
                log.warning(
                    "space not opened: its model is not configured", extra={"space": name, "like": like}
                )
                continue
            found.append((name, model))
        return found

    def _folder(self, name: str) -> Path:
        return self._config.data / "spaces" / name

    def _options(self, name: str, settings: SpaceSettings) -> HostOptions:
        journal = self._config.journal
        return HostOptions(
            name=name,
            folder=self._folder(name) / "journal",
            journal=msgspec.structs.replace(
                journal,
                mode=settings.journal or journal.mode,
                retain_days=journal.retain_days if settings.retain_days is None else settings.retain_days,
                log=journal.log and self._config.cluster is None,
            ),
        )

    def _host(self, options: HostOptions, space: Space, journal: Journal) -> SpaceHost:
        applier = self._applier(options, space, journal, JournalDurability)
        return SpaceHost(applier, LocalOrder(applier))

    def _applier(
        self,
        options: HostOptions,
        space: Space,
        journal: Journal,
        make_durability: Callable[[JournaledSpace], Durability],
    ) -> InputApplier:
        delivery = Delivery(
            Outgoing(asyncio.get_running_loop()),
            MessageHistory(POLL_MESSAGES, POLL_BYTES),
            on_mail=lambda mail: self._send_mail(mail, options.name),
        )
        return InputApplier(
            JournaledSpace(options, space, journal, delivery, self._database, make_durability)
        )

    def _send_mail(self, mail: Mail, space: str) -> None:
        self._on_mail(mail, space)

    def _space_config(self, name: str, settings: SpaceSettings) -> SpaceConfig:
        """Its rules under its own name, with what tokens carry and the address that invitees are told.

        The address (MEW 3.6.6) is the gateway's own unless the configuration names one.
        """
        limits = {
            token: grant.capabilities
            for token, grant in settings.tokens.items()
            if grant.capabilities is not None
        }
        address = self._url.replace("http", "ws", 1)
        url = settings.config.connection_url or f"{address}/participants/{{id}}/ws?space={name}"
        return msgspec.structs.replace(
            settings.config,
            name=name,
            token_limits=limits,
            connection_url=url,
        )

    def _add_to_directory(self, name: str, host: SpaceHost, settings: SpaceSettings | None) -> None:
        self._directory.hosts[name] = host
        if settings is not None:
            self._set_other_name(name, settings)

    def _set_other_name(self, name: str, settings: SpaceSettings) -> None:
        if settings.other_name is not None:
            self._directory.other_names[settings.other_name] = name

    def _add_outputs(self, host: SpaceHost, settings: SpaceSettings) -> None:
        for name, path in settings.output_logs.items():
            output = OutputLog(path)
            self._outputs.setdefault(host.name, []).append(output)
            member = settings.members.get(name)
            is_joining_late = settings.config.reference_compat and not (member and member.auto_connect)
            output.join(host, name, welcome_at_first_post=is_joining_late)

    def _close_outputs(self, space: str) -> None:
        for output in self._outputs.pop(space, ()):
            output.close()


async def nobody_asks(_host: SpaceHost) -> None:
    """Until somebody does."""


def _resume(host: SpaceHost, config: SpaceConfig) -> None:
    """Go on after a restart: everybody has left, and the configuration may be another one by now."""
    journaled, space = host.journaled, host.space
    known = set(space.state.roster.members)
    lost = journaled.is_clock_lost
    journaled.step("restart", lambda now, mint: space.restart(now, mint, clock_lost=lost), clock_lost=lost)
    journaled.step("reload", lambda now, mint: space.reload(config, now, mint), config=save_config(config))
    # Who is new in the configuration was no member when all of the history was said.
    now = journaled.clock()
    for name in space.state.roster.members:
        if name not in known:
            host.delivery.history.hide_before(name, now)


def _begin(host: SpaceHost) -> None:
    """Let members in: the journal was opened, so it can be written."""
    host.journaled.watch_wall_clock()
    host.journaled.watch_age()
    if not host.space.state.journal_writable:
        host.journaled.step("health", lambda _now, _mint: host.space.health(journal_writable=True), able=True)
