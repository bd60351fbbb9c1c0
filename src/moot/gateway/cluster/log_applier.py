"""What the log of a cluster brings, carried out on the spaces of this gateway.

Whatever a gateway does by itself (who is gone, which deadlines have come, when a snapshot is due) follows
from the log alone, so that all of them do it at the same place.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from moot.config.cluster_config import ClusterConfig
from moot.errors import InvalidOperation, Unavailable, UsageError
from moot.gateway.cluster.cluster_shard import Shard
from moot.gateway.cluster.nats.batch import LogBatch, LoggedInput
from moot.gateway.cluster.nats.log_writer import PendingInput
from moot.gateway.cluster.shard_snapshots import ShardSnapshots
from moot.gateway.cluster.shared_input import SharedInput, read_shared_input
from moot.gateway.created_spaces import EndedSpace, explain_ended
from moot.gateway.hosting.input_order import Outcome
from moot.protocol.envelope import rfc3339
from moot.space.config import SessionId, SpaceConfig
from moot.space.config_json import load_config
from moot.space.effects import Token
from moot.space.space import Space

if TYPE_CHECKING:
    from moot.gateway.cluster.cluster_space_factory import ClusterSpaceFactory

log = logging.getLogger(__name__)

# So far the clock of NATS may be ahead of that of the gateway that wrote. With NTP they differ by less.
CLOCK_TOLERANCE_SECONDS: Final = 2.0
# Each session has one that it repeats; what is in the log may be made up.
_MAX_HEADS: Final = 65_536
# No space has this name.
_NOT_KNOWN: Final = ("", SessionId(""))


class LogApplier:
    """Applies one batch after another. A space of the log that cannot be opened ends the gateway, or its try
    to serve that shard."""

    def __init__(
        self,
        config: ClusterConfig,
        configs: Mapping[str, SpaceConfig],
        spaces: ClusterSpaceFactory,
        snapshots: ShardSnapshots,
    ) -> None:
        self._config = config
        self._configs = configs
        self._spaces = spaces
        self._snapshots = snapshots
        # Heads of messages of members, and of which space and session they are.
        self._receiving: dict[bytes, tuple[str, SessionId]] = {}

    def apply(
        self, shard: Shard, sequence: int, at: float, batch: LogBatch, own: Sequence[PendingInput]
    ) -> None:
        """Carry out one message of the log; `own` are the inputs in it that this process has appended."""
        head = batch.head
        if head.made_at:
            # One clock that is ahead, of NATS or of a gateway, must not end what was granted for a time.
            at = min(at, head.made_at + CLOCK_TOLERANCE_SECONDS)
        if head.beat:
            seconds = self._config.heartbeat_seconds
            at = max(at, shard.table.earliest_time(head.gateway, head.epoch, seconds))
        now = shard.clock.advance(at)
        known = shard.table.known.get(head.gateway)
        is_restart = known is not None and known.epoch < head.epoch
        if not shard.table.note_batch(head.gateway, head.epoch):
            return
        shard.seed = head.seed.encode()
        if is_restart:
            self._drop_sessions(shard, head.gateway, head.epoch, head.seed)
        if head.beat:
            for gone in shard.table.note_beat(head.gateway, now):
                log.warning("gateway gone", extra={"gateway": gone, "shard": shard.index})
                self._drop_sessions(shard, gone, None, head.seed)
            for order in shard.orders.values():
                order.expire(_seed(head.seed, f"expire {order.name}"))
        inputs = shard.parts.add(head, batch.part) if head.parts else batch.inputs
        for index, input in enumerate(inputs):
            pending = own[index] if index < len(own) else None
            # An envelope that needs no look, as most are: what its head says is known from an earlier one.
            space, session = self._receiving.get(input.head, _NOT_KNOWN)
            serving = shard.orders.get(space)
            if serving is not None and serving.apply_fast(session, input.raw):
                if pending is not None and pending.on_done is not None:
                    pending.on_done(None)
                continue
            self._apply_input(shard, head.gateway, input, _seed(head.seed, str(index)), pending)
        for pending in own[len(inputs) :]:
            # The others took this gateway for gone, and have forgotten its first parts.
            if pending.on_done is not None:
                pending.on_done(Unavailable("this gateway was silent for too long: not done"))
        shard.counted += 1 + len(inputs)
        if shard.counted >= self._config.snapshot_inputs and not shard.parts:
            # Whoever begins there would not have the first parts.
            self._snapshots.take(shard, sequence)

    def open_space(self, shard: Shard, name: str, state: dict[str, Any], *, is_ours: bool = False) -> None:
        """Serve a space from this state, if it is configured here."""
        like = shard.likes.get(name)
        if name not in self._configs and like not in self._configs:
            # Its inputs are passed over; a gateway whose configuration has it serves it.
            if name not in shard.unknown:
                log.warning("the cluster has a space that is not configured here", extra={"space": name})
            shard.unknown.add(name)
            return
        state = dict(state)
        config = load_config(state.pop("config"))
        try:
            shard.orders[name] = self._spaces.open_space(name, Space(config, saved=state), shard, is_ours)
        except UsageError as fault:
            if like is None:
                shard.log.fail(fault)
                return
            # Nobody here asked for it: the other spaces of this gateway go on.
            log.error("space not served here", extra={"space": name, "why": str(fault)})
            shard.unknown.add(name)

    def _apply_input(
        self, shard: Shard, gateway: str, input: LoggedInput, seed: bytes, pending: PendingInput | None
    ) -> None:
        outcome: Outcome = None
        try:
            stored = read_shared_input(input.head)
            order = shard.orders.get(stored.space)
            if not stored.space:
                self._apply_own_input(shard, gateway, stored.input, stored.who, input)
            elif stored.input == "create":
                outcome = self._create(shard, stored, is_ours=pending is not None)
            elif stored.input == "end":
                outcome = self._end(shard, stored)
            elif stored.input == "drop":
                outcome = self._drop_space(shard, stored)
            elif order is not None:
                if stored.input == "receive" and not stored.tokens:
                    if len(self._receiving) >= _MAX_HEADS:
                        self._receiving.clear()
                    self._receiving[input.head] = stored.space, SessionId(stored.session)
                order.expire(seed + b"expire")
                secret = None
                if pending is not None and pending.secrets:
                    secret = Token(stored.tokens[0], pending.secrets[0])
                outcome = order.apply(stored, input, seed, secret)
            elif (ended := shard.ended.get(stored.space)) is not None:
                outcome = InvalidOperation(f"this space was {ended.ended}")
        except Exception as fault:
            # All gateways meet it; should it be one alone, then its state differs and it finds out.
            log.exception("an input of the log could not be applied", extra={"gateway": gateway})
            outcome = fault
        if pending is not None and pending.on_done is not None:
            pending.on_done(outcome)

    def _create(self, shard: Shard, stored: SharedInput, *, is_ours: bool) -> InvalidOperation | None:
        """Open a space that is new; one that another gateway has made meanwhile is there already."""
        name = stored.space
        if (ended := shard.ended.get(name)) is not None:
            return InvalidOperation(explain_ended(name, ended))
        if name in shard.orders or name in shard.unknown:
            return InvalidOperation(f"there is a space {name!r} already")
        if stored.like:
            shard.likes[name] = stored.like
        shard.records[name] = (hashlib.sha256(b"space " + shard.seed + name.encode()).hexdigest()[:16], 0)
        self.open_space(shard, name, _decode_object(bytes(stored.state)), is_ours=is_ours)
        return None

    def _end(self, shard: Shard, stored: SharedInput) -> InvalidOperation | None:
        """Close a space that was made while gateways ran, on all of them, for good."""
        name, before = stored.space, shard.ended.get(stored.space)
        if before is None and name not in shard.likes:
            return InvalidOperation(f"no space {name!r} was made while these gateways ran")
        if before is not None and stored.how == "archived":
            return InvalidOperation(explain_ended(name, before))
        shard.ended[name] = ended = EndedSpace(stored.how, stored.by, rfc3339(shard.clock.latest))
        shard.likes.pop(name, None)
        shard.unknown.discard(name)
        shard.orders.pop(name, None)
        self._spaces.note_ended(name, ended)
        # At once: whoever begins behind it does not meet it, and the log can be trimmed.
        shard.counted = self._config.snapshot_inputs
        return None

    def _drop_space(self, shard: Shard, stored: SharedInput) -> InvalidOperation | None:
        """Forget a space, if each gateway that lives by the log has said that its file does not have it.

        So no gateway loses a space that it serves: one that started meanwhile was not asked. One that was
        away all the time finds out here, keeps its files and ends.
        """
        name, living = stored.space, shard.table.living()
        unasked = [each for each in living if f"{each}.{shard.table.known[each].epoch}" not in stored.keys]
        if unasked:
            return InvalidOperation(f"gateway {', '.join(unasked)} has come meanwhile: try again")
        if name in shard.orders:
            shard.log.fail(UsageError(explain_dropped(name)))
            return None
        log.warning("space dropped", extra={"space": name, "by": stored.by})
        shard.unknown.discard(name)
        shard.likes.pop(name, None)
        shard.dropped.add(name)
        # At once: whoever begins behind it meets no space that was dropped, and the log can be trimmed.
        shard.counted = self._config.snapshot_inputs
        return None

    def _apply_own_input(self, shard: Shard, gateway: str, input: str, who: str, logged: LoggedInput) -> None:
        """What a gateway says of itself."""
        if input == "started":
            shard.table.known[gateway].version = who
            shard.versions.add(who)
        elif input == "stopped":
            self._drop_sessions(shard, gateway, None, shard.seed.decode())
            shard.table.note_stop(gateway)
        elif input == "snapshot":
            self._snapshots.compare(shard, gateway, _decode_object(logged.raw))
        elif input == "compare" and shard.log.writer.epoch:
            # Nobody waits for those that were asked for before our start.
            shard.compare()

    def _drop_sessions(self, shard: Shard, gateway: str, before: int | None, seed: str) -> None:
        """Let the sessions leave that a gateway held, those of processes before this epoch or all."""
        shard.parts.drop(gateway)
        for order in shard.orders.values():
            lost = [
                session
                for session in order.space.state.roster.sessions
                if (found := _gateway_of(session)) is not None
                and found[0] == gateway
                and (before is None or found[1] < before)
            ]
            if lost:
                order.drop(lost, _seed(seed, f"gone {gateway} {order.name}"))


def explain_dropped(name: str) -> str:
    """For a gateway whose file has a space that the cluster does not have any more."""
    return (
        f"the log of this cluster does not have space {name!r} any more, of which this gateway has a copy: "
        "an operator has dropped it. Take it out of this gateway's file; or, to begin a new space of that "
        f"name, move the folder spaces/{name} of this gateway's data away"
    )


def _decode_object(data: bytes) -> dict[str, Any]:
    decoded = json.loads(data)  # integers of any size
    if not isinstance(decoded, dict):
        raise UsageError("an input of the log that no gateway wrote")
    return decoded


def _gateway_of(session: str) -> tuple[str, int] | None:
    """The gateway that held a session, and the epoch of its process."""
    gateway, dot, rest = session.partition(".")
    epoch = rest.partition("-")[0]
    return (gateway, int(epoch)) if dot and epoch.isdigit() else None


def _seed(seed: str, part: str) -> bytes:
    return f"{seed}/{part}".encode()
