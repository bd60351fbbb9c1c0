"""Opening spaces that other gateways serve, too: their state comes from the cluster's log, and this gateway's
own folder holds a copy of the journal."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from moot.config.cluster_config import ClusterConfig
from moot.config.configuration import Configuration, SpaceSettings
from moot.config.loader import is_space_name
from moot.errors import InvalidOperation, Refused, Unavailable, UsageError
from moot.gateway.access import AccessDenied, SpaceDirectory
from moot.gateway.cluster.cluster_node import ClusterNode
from moot.gateway.cluster.cluster_shard import Shard
from moot.gateway.cluster.log_applier import explain_dropped
from moot.gateway.cluster.log_order import LogOrder
from moot.gateway.cluster.shard_questions import ShardQuestions
from moot.gateway.created_spaces import CLUSTER_FILE, End, EndedSpace, explain_ended
from moot.gateway.hosting.durability import CarriedOut, PendingEffects
from moot.gateway.hosting.input_order import Outcome, Tell, wait_applied
from moot.gateway.hosting.journaled_space import JournaledSpace
from moot.gateway.hosting.mint import FreshMint
from moot.gateway.hosting.saved_history import restore_history
from moot.gateway.hosting.space_host import SpaceHost
from moot.gateway.hosting.space_records import recorded_time
from moot.gateway.hosting.space_restore import restore_space
from moot.gateway.other_spaces import AskedSpaces
from moot.gateway.space_factory import SpaceFactory, nobody_asks
from moot.protocol.close_codes import MOVED
from moot.protocol.operation import Json
from moot.resilience.atomic_file import write_atomically
from moot.resilience.task_set import TaskSet
from moot.space.config import SpaceConfig
from moot.space.config_json import save_config
from moot.space.effects import Mail
from moot.space.space import Space
from moot.store.database import Database
from moot.store.journal import SharedRecords
from moot.store.journal_reader import last_records
from moot.store.open_journal import open_journal
from moot.store.position_marker import read_marker


class LogDurability:
    """Effects go out at once: whatever comes out of the log is kept, by NATS."""

    unsaved = None
    sends_at_once = True
    withholds = False
    lost_records = 0

    def __init__(self, journaled: JournaledSpace) -> None:
        self._journaled = journaled

    def check(self) -> None:
        """It was kept before it was applied."""

    def carry_out(self, entry: PendingEffects) -> None:
        if entry.waits:
            # Also in the copy soon: should a power cut take the end of the log, a right must not come back.
            self._journaled.journal.when_durable(entry.number, _nobody_waits)
        entry.finish(self._journaled.delivery, on_disk=True)

    def release(self) -> None:
        """Nothing waits."""

    def tell_unsaved(self) -> None:
        """Nothing is unsaved."""

    def report_health(self, writable: bool) -> None:
        """The files of one gateway are its own affair: the space goes on by the log."""
        log.log(
            logging.INFO if writable else logging.ERROR,
            "the local journal is written again" if writable else "the local journal cannot be written",
            extra={"space": self._journaled.name},
        )

    async def wait_noted(self, number: int, done: CarriedOut) -> None:
        """The log itself knows of every record."""

    def stop(self) -> None:
        """Nobody waits."""


log = logging.getLogger(__name__)

_COPIED_RECORDS: Final = 64
# A disk that does not answer at the end has this long: what the copy lacks is in the log, which has used
# its own share of the 5 s of a stop.
_CLOSE_SECONDS: Final = 1.0
# NATS has each input on disk before it is applied: what a power cut takes from the copy here is read from
# the log again. An fsync for each message cost as much as applying it.
_SYNC_SECONDS: Final = 1.0


def _nobody_waits() -> None:
    """It was carried out when it came."""


def _nobody_told(_outcome: Outcome) -> None:
    """Whoever wants the space looks again when the log has brought it."""


def explain_other_log(name: str, mark: Path) -> str:
    """With `serves: shared`, a copy may be older than that of whoever served the space last."""
    return (
        f"{mark.parent} has space {name!r} of another log, which another gateway may have served later: use "
        f"the folder with the newest journal of all gateways, and remove the file {mark.name!r} in it"
    )


class ClusterSpaceFactory(SpaceFactory):
    """Opens the spaces of one gateway of a cluster."""

    def __init__(
        self,
        configuration: Configuration,
        directory: SpaceDirectory,
        database: Database,
        *,
        url: str,
        on_mail: Callable[[Mail, str], None],
        cluster: ClusterConfig,
        port: int,
        close_sockets: Callable[[str], None],
    ) -> None:
        super().__init__(configuration, directory, database, url=url, on_mail=on_mail)
        # Those of shards that are starting, too; they are served when the directory has them.
        self._opened: dict[str, SpaceHost] = {}
        # As it was last loaded.
        self._latest = configuration
        self._tasks = TaskSet("spaces")
        self.node = ClusterNode(
            cluster,
            port=port,
            configs={
                name: self._space_config(name, settings) for name, settings in configuration.spaces.items()
            },
            spaces=self,
            close_sockets=close_sockets,
        )

    async def open_all(self) -> None:
        await self.node.start()
        assert self.node.connection is not None  # noqa: S101  # started
        await ShardQuestions(self.node, self._directory, self._tasks).start(self.node.connection)
        others = self._directory.others
        others.answer("new_space", self._answer_new)
        others.answer("make_space", self._answer_make)
        self._directory.guest_prefix = f"{self.node.name}-{self.node.common.log.writer.epoch}-"
        self._directory.create_asked = self._create_asked
        self._let_members_create()

    async def close(self) -> None:
        # It stops itself.
        self.on_left = nobody_asks
        try:
            await self.node.stop()
        finally:
            await self._tasks.wait(_CLOSE_SECONDS)
            await self._tasks.close()
            await asyncio.gather(super().close(), self.node.disconnect())

    # What a shard asks that begins or ends to be served

    def serve(self, shard: Shard) -> None:
        """Let members into its spaces."""
        for name in shard.orders:
            host = self._opened[name]
            settings = self._configuration.spaces.get(name)
            self._add_to_directory(name, host, settings)
            if settings is not None:
                self._add_outputs(host, settings)
            log.info("space open", extra={"space": name, "position": shard.log.position})
            self.on_created(host)

    def let_go(self, shard: Shard) -> None:
        """Send the members of its spaces to other gateways."""
        for name in shard.orders:
            host = self._directory.hosts.pop(name, None)
            if host is not None:
                host.close_connections(
                    MOVED, "this gateway stops to serve this space: connect to another one"
                )

    async def close_spaces(self, shard: Shard, *, was_served: bool) -> None:
        """Let go of its spaces, with everything on disk. Who was not served, nobody was told of."""
        left = [name for name in self._opened if self.node.shard_of(name) is shard]
        hosts = [self._opened.pop(name) for name in left]
        await asyncio.gather(*(host.stop() for host in hosts))
        for host in hosts:
            self._close_outputs(host.name)
            if was_served:
                await self.on_left(host)

    def config_like(self, name: str, like: str) -> SpaceConfig:
        settings = self._latest.spaces.get(like) or self._configuration.spaces[like]
        return self._space_config(name, settings)

    def open_space(self, name: str, space: Space, shard: Shard, is_ours: bool) -> LogOrder:
        folder, like = self._folder(name), shard.likes.get(name)
        mark = folder / CLUSTER_FILE
        if name in self._created.ended and not (mark.exists() and mark.read_text() == shard.identity):
            raise UsageError(explain_ended(name, self._created.ended[name]))
        options = self._options(name, self._settings_of(name, like))
        options = msgspec.structs.replace(options, clock=shard.clock)
        copied_until = self.copied_until(name, shard.identity, is_ours)
        try:
            write_atomically(mark, shard.identity.encode())
            if like is not None and name not in self._configuration.spaces:
                self._created.note_created(name, like)
        except OSError as fault:
            raise UsageError(f"{folder} cannot be written: {fault.strerror}") from None
        journal = open_journal(options.folder, options.journal, sync_seconds=_SYNC_SECONDS)
        journal.clock = shard.clock
        journal.close_seconds = _CLOSE_SECONDS
        applier = self._applier(options, space, journal, LogDurability)
        order = LogOrder(applier, self.node, shard, copied_until)
        host = self._opened[name] = SpaceHost(applier, order)
        order.on_reloaded = partial(self._directory.end_excluded, host)
        self._restore_history(host, shard)
        marker = read_marker(folder)
        host.journaled.snapshots.generation = 0 if marker is None else marker.snapshot
        if shard.clock.latest > copied_until:
            # What lies between is not in this gateway's copy; from here on it tells everything again.
            records = order.records
            host.record_state("a gateway of a cluster begins here", log=records.id, earlier=records.count)
        if shard.state == "served":
            # It was made while gateways run.
            self._add_to_directory(name, host, None)
            self.on_created(host)
        return order

    def _restore_history(self, host: SpaceHost, shard: Shard) -> None:
        """Who polls is to find what the gateway before would have."""
        history, saved = host.delivery.history, shard.histories.pop(host.name, None)
        if saved is not None:
            restore_history(history, saved, host.journaled.folder, shard.clock.latest)
        elif host.space.state.window.order:
            # It comes from files, and not from its beginning in the log.
            history.known_since = shard.clock.latest

    def _settings_of(self, name: str, like: str | None) -> SpaceSettings:
        spaces = self._configuration.spaces
        return spaces.get(name) or spaces[like or ""]

    # Spaces that are made and ended while gateways run

    def create(self, name: str) -> AccessDenied:
        if (refusal := self._refuse_new(name)) is not None:
            return refusal
        try:
            like = self._configuration.model_space or ""
            self._submit_new(name, like, "", self._new_state(name, like), _nobody_told)
        except Unavailable as unavailable:
            return AccessDenied(503, unavailable.message, retry_after=1)
        return AccessDenied(503, "the space is being made: try again in a moment", 1, is_pending=True)

    def _create_asked(
        self, name: str, token_hash: str, call: Callable[[AccessDenied | Unavailable | None], None]
    ) -> None:
        async def create() -> None:
            why: AccessDenied | Unavailable | None
            try:
                why = await self._create_after_asking(name, token_hash)
            except Unavailable as unavailable:
                why = unavailable
            except Refused as refusal:
                why = AccessDenied(404, refusal.message)
            call(why)

        self._tasks.start(create())

    async def _create_after_asking(self, name: str, token_hash: str) -> AccessDenied | None:
        """For whom another gateway serves the model, which knows who may."""
        if name in self._directory.hosts:
            return None
        if (refusal := self._refuse_new(name)) is not None:
            return refusal
        like = self._configuration.model_space or ""
        found = await self._directory.others.ask(
            "new_space", {"name": name, "like": like, "token": token_hash}, of=like
        )
        if found == [None]:
            # Counted as a wrong one.
            return AccessDenied(403, "this token does not open this space")
        if found:
            with suppress(InvalidOperation):
                # Or somebody else has just made it.
                await self._create_with(name, like, "", found[0])
        return None

    async def create_space(self, name: str, like: str | None, by: str) -> str:
        like = self._model_for(name, like)
        others = self._directory.others
        if not self.node.serves(name):
            await others.ask("make_space", {"name": name, "like": like, "by": by}, of=name)
            return like
        found = await others.ask("new_space", {"name": name, "like": like}, of=like)
        await self._create_with(name, like, by, found[0] if found else None)
        return like

    async def _create_with(self, name: str, like: str, by: str, state: str | None) -> None:
        """`state`: of a gateway that serves the model, if this one does not."""
        made = self._new_state(name, like) if state is None else json.loads(state)
        await wait_applied(partial(self._submit_new, name, like, by, made))
        if name not in self._directory.hosts:
            raise Unavailable(f"space {name!r} was made, and this gateway cannot open it: see its log")

    async def _answer_make(self, facts: Json, _asked: AskedSpaces) -> Json:
        self._directory.check_serves(facts["name"])
        await self.create_space(facts["name"], facts["like"], facts["by"])

    async def _answer_new(self, facts: Json, _asked: AskedSpaces) -> Json:
        like = self._model_for(facts["name"], facts["like"])
        self._directory.check_serves(like)
        if (token := facts.get("token")) is not None and not self._directory.may_create(like, token):
            return None
        # As text: it has integers of any size.
        return json.dumps(self._new_state(facts["name"], like))

    def _new_state(self, name: str, like: str) -> dict[str, Json]:
        space = self._new_space(name, like)
        return space.save() | {"config": save_config(space.state.config)}

    def _submit_new(self, name: str, like: str, by: str, state: Json, tell: Tell) -> None:
        facts: dict[str, Json] = {"state": state, "like": like, "by": by}
        self.node.submit(self.node.shard_of(name), name, "create", facts, tell)

    def _why_not(self, name: str) -> str | None:
        if not is_space_name(name):
            return super()._why_not(name)
        shard = self.node.shard_of(name)
        if (ended := shard.ended.get(name)) is not None:
            return explain_ended(name, ended)
        return (
            "there is one that this gateway cannot open" if name in shard.unknown else super()._why_not(name)
        )

    async def end_space(self, name: str, how: End, by: str) -> None:
        if name in self._configuration.spaces:
            self._created.check_may_end(name, how, self._configuration.spaces)
        shard = self.node.shard_of(name)
        self.node.check_current(shard)
        await wait_applied(partial(self.node.submit, shard, name, "end", {"how": how, "by": by}))
        if how == "deleted":
            await self.node.status.forget_content(name)

    def reload(self, configuration: Configuration) -> list[str]:
        for name in self.node.configs.keys() & configuration.spaces.keys():
            self.node.configs[name] = self._space_config(name, configuration.spaces[name])
        self._latest = configuration
        return super().reload(configuration)

    def _ended(self) -> dict[str, EndedSpace]:
        return {name: each for shard in self.node.shards for name, each in shard.ended.items()}

    def note_ended(self, name: str, ended: EndedSpace) -> None:
        """The log says that a space has ended: so has what this gateway has of it."""
        opened = self._opened.pop(name, None)
        host = self._let_go(name, ended) or opened
        if self._created.ended.get(name) != ended and self._folder(name).exists():
            try:
                self._created.note_ended(name, ended)
            except OSError as fault:
                # The next start is told again.
                log.error("the end of a space is not noted", extra={"space": name, "fault": str(fault)})
        self._tasks.start(self._clear(name, ended, host))

    def made_here(self, shard: Shard) -> dict[str, str]:
        """Spaces that this gateway made while it was alone, or in another cluster."""
        found = {}
        for name, like in self._created.models.items():
            if name in shard.orders or name in shard.unknown or name in self._configuration.spaces:
                continue
            if self.node.shard_of(name) is not shard or like not in self._configuration.spaces:
                continue
            mark = self._folder(name) / CLUSTER_FILE
            if mark.exists() and mark.read_text() == shard.identity:
                # What was revoked there since this copy was made would be allowed again.
                log.error("space not served", extra={"space": name, "why": explain_dropped(name)})
                continue
            found[name] = like
        return found

    def _send_mail(self, mail: Mail, space: str) -> None:
        if mail.token.secret is not None:
            # Only the gateway that took the invitation in knows the token.
            super()._send_mail(mail, space)

    @staticmethod
    def records_of(host: SpaceHost) -> SharedRecords:
        """How its records are numbered; also of one that has just ended."""
        assert isinstance(host.order, LogOrder)  # noqa: S101  # as made above
        return host.order.records

    def copied_until(self, name: str, identity: str, is_ours: bool = False) -> float:
        """Up to which time of the log the local journal has it. Raises UsageError when it is of another."""
        folder = self._folder(name)
        if not (folder / "journal").exists():
            return 0.0
        mark = folder / CLUSTER_FILE
        if mark.exists() and mark.read_text() == identity:
            return max(
                (recorded_time(each.line) for each in last_records(folder / "journal", _COPIED_RECORDS)),
                default=0.0,
            )
        if is_ours:
            return 0.0
        raise UsageError(
            f"{folder} holds a space {name!r} of its own, and the cluster has one of that name with another "
            "past: move that folder away if the cluster's is the right one"
        )

    async def initial_state(self, name: str) -> dict[str, Json] | None:
        """What this gateway's files know of a space that the log does not have yet; everybody has left."""
        folder = self._folder(name)
        if not (folder / "journal").exists():
            return None
        mark = folder / CLUSTER_FILE
        if mark.exists() and mark.read_text() == self.node.shard_of(name).identity:
            # What was revoked there since this copy was made would be allowed again.
            raise UsageError(explain_dropped(name))
        if mark.exists() and self.node.config.serves == "shared":
            raise UsageError(explain_other_log(name, mark))
        settings = self._settings_of(name, self._created.models.get(name))
        options, config = self._options(name, settings), self._space_config(name, settings)
        restored = await restore_space(options, config, self._database)
        await restored.journal.close()
        if restored.is_new:
            # As if it were not there: nobody was ever in it.
            return None
        space, mint = restored.space, FreshMint()
        space.restart(restored.latest, mint)
        # From here on the log keeps what happens, whatever the disk was like.
        space.health(journal_writable=True)
        space.reload(config, restored.latest, mint)
        log.info("the space of this gateway's files becomes the cluster's", extra={"space": name})
        return space.save() | {"config": save_config(config)}
