"""What the gateway counts and times, for `/metrics`: every family is described here, once.

Labels are spaces, codes and outcomes, never participants. Who counts keeps the count, and it is read when
somebody asks. Only times are put into histograms as they come: of some writes, of
fsyncs and of decisions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final, get_args

from moot import __version__
from moot.gateway.access_limiter import AccessLimiter
from moot.gateway.evidence.log_keeper import LogKeeper
from moot.gateway.hosting.fast_path import COMPILED
from moot.gateway.hosting.space_host import SpaceHost
from moot.gateway.notifications.channels import OUTCOMES
from moot.gateway.notifications.notifier import Notifier
from moot.metrics import BUILD_INFO, MetricTable, Registry, measure_build
from moot.metrics.process import PROCESS_METRICS, measure_process
from moot.net.http_protocol import ConnectionLimiter
from moot.space.proposals.proposal_ledger import Decision
from moot.store.file_journal import TIMED_WRITES

# A rule decides within a second, a person within minutes, or tomorrow.
_DECISION_SECONDS: Final = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0)
# A write goes to the kernel's memory: microseconds, unless the disk is behind.
_WRITE_SECONDS: Final = (0.00001, 0.000025, 0.0001, 0.00025, 0.001, 0.0025, 0.01, 0.1, 1.0)
# Anybody may ask for the figures, and of many spaces they take long to write down. Where that takes more CPU
# time than this, the text is given again for so many times as long: a twentieth of the loop's time, then.
_CHEAP_SECONDS: Final = 0.005
_REUSE_FACTOR: Final = 20.0

_TABLE: Final = MetricTable(BUILD_INFO)
CONNECTIONS: Final = _TABLE.gauge("moot_connections", "Open TCP connections.")
CONNECTIONS_REFUSED: Final = _TABLE.counter(
    "moot_connections_refused_total",
    "Connections cut because of max_connections_per_address or max_connections.",
)
WRONG_TOKENS: Final = _TABLE.counter(
    "moot_wrong_tokens_total", "Requests and joins with a token that nobody has."
)
JOINS_REFUSED: Final = _TABLE.counter(
    "moot_joins_refused_total", "Joins refused because one participant joined too often."
)
NOTIFICATIONS: Final = _TABLE.counter(
    "moot_notifications_total",
    "Tries to notify somebody: sent, refused with an error, or unreachable; what was not sent is repeated.",
    "outcome",
)
SESSIONS: Final = _TABLE.gauge("moot_sessions", "Sessions that have joined.", "space")
RECEIVED: Final = _TABLE.counter(
    "moot_envelopes_received_total", "Envelopes received by socket and HTTP, refused ones included.", "space"
)
FAST_PATH: Final = _TABLE.counter(
    "moot_envelopes_fast_path_total", "Of these, how many took the fast path.", "space"
)
DELIVERED: Final = _TABLE.counter("moot_messages_delivered_total", "Messages sent to members.", "space")
REFUSALS: Final = _TABLE.counter(
    "moot_refusals_total",
    "Envelopes refused, by the code that the sender was answered with.",
    "space",
    "code",
)
REFUSALS_COUNTED: Final = _TABLE.counter(
    "moot_refusals_only_counted_total",
    "Of these, how many have no record of their own in the journal: a member has 120 a minute.",
    "space",
)
REFUSED_BYTES_DROPPED: Final = _TABLE.counter(
    "moot_refused_bytes_dropped_total", "Bytes of refused messages that the journal does not keep.", "space"
)
OPEN_PROPOSALS: Final = _TABLE.gauge("moot_open_proposals", "Proposals that wait for a decision.", "space")
DECISIONS: Final = _TABLE.histogram(
    "moot_proposal_decision_seconds",
    "From a proposal to its fulfilment, first rejection, withdrawal or expiry.",
    "space",
    "outcome",
    bounds=_DECISION_SECONDS,
)
JOURNAL_WRITABLE: Final = _TABLE.gauge(
    "moot_journal_writable", "1 while the journal can be written; 0 is degraded.", "space"
)
JOURNAL_WRITE: Final = _TABLE.histogram(
    "moot_journal_write_seconds",
    f"Duration of writing what one tick of the loop brought; one write in {TIMED_WRITES} is timed.",
    "space",
    bounds=_WRITE_SECONDS,
)
JOURNAL_SYNC: Final = _TABLE.histogram(
    "moot_journal_sync_seconds", "Duration of an fsync of the journal.", "space"
)
JOURNAL_SYNC_RUNNING: Final = _TABLE.gauge(
    "moot_journal_sync_running_seconds",
    "How long the fsync that runs now has taken so far; 0 when none runs.",
    "space",
)
LOG_SIGNED: Final = _TABLE.gauge(
    "moot_log_signed",
    "1 while the log of the journal is signed; 0: it does not fit what was signed, or cannot be written.",
    "space",
)
LOG_BEHIND: Final = _TABLE.gauge(
    "moot_log_behind_records", "Records that are on disk, and that no checkpoint is signed for yet.", "space"
)
LOG_UNWITNESSED: Final = _TABLE.gauge(
    "moot_log_unwitnessed_seconds",
    "How long fewer witnesses have signed the log than the policy asks for; 0 while enough do.",
    "space",
)
SNAPSHOTS_SAVED: Final = _TABLE.gauge(
    "moot_snapshots_saved",
    "1 while snapshots and the position of the journal can be written; 0: a restart has more to read again.",
    "space",
)
WALL_AHEAD: Final = _TABLE.gauge(
    "moot_wall_clock_ahead_seconds",
    "How far the wall clock is ahead of the space's time: not 0 after it was set.",
    "space",
)

GATEWAY_METRICS: Final = (*_TABLE.descriptions, *PROCESS_METRICS)


class GatewayMeasures:
    """The metrics of one gateway."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self.registry = Registry()
        self._clock = clock
        self._cpu_clock = cpu_clock
        # The last text, and until when it is given again.
        self._text = ""
        self._fresh_until = 0.0
        self._hosts: list[SpaceHost] = []
        measure_build(self.registry, version=__version__, is_compiled=COMPILED)
        measure_process(self.registry)

    def watch_connections(self, limiter: ConnectionLimiter) -> None:
        CONNECTIONS.of(self.registry).read = lambda: limiter.connections
        CONNECTIONS_REFUSED.of(self.registry).read = lambda: limiter.refused

    def watch_access(self, limiter: AccessLimiter) -> None:
        WRONG_TOKENS.of(self.registry).read = lambda: limiter.wrong_tokens
        JOINS_REFUSED.of(self.registry).read = lambda: limiter.joins_refused

    def watch_notifications(self, notifier: Notifier) -> None:
        for outcome in OUTCOMES:
            counter = NOTIFICATIONS.of(self.registry, outcome=outcome)
            counter.read = partial(notifier.outcomes.__getitem__, outcome)

    def watch_space(self, host: SpaceHost) -> None:
        """From now on; what was replayed before is not counted again."""
        registry, space = self.registry, host.name
        self._hosts.append(host)
        SESSIONS.of(registry, space=space).read = lambda: len(host.space.state.roster.sessions)
        RECEIVED.of(registry, space=space).read = lambda: host.received
        FAST_PATH.of(registry, space=space).read = lambda: host.fast_paths.accepted
        DELIVERED.of(registry, space=space).read = lambda: host.delivered
        refused = host.refusals.log
        REFUSALS_COUNTED.of(registry, space=space).read = lambda: refused.counted
        REFUSED_BYTES_DROPPED.of(registry, space=space).read = lambda: refused.dropped_bytes
        OPEN_PROPOSALS.of(registry, space=space).read = lambda: len(host.space.state.ledger.all_open())
        JOURNAL_WRITABLE.of(registry, space=space).read = lambda: float(host.journal.writable)
        snapshots = host.journaled.snapshots
        SNAPSHOTS_SAVED.of(registry, space=space).read = lambda: float(
            snapshots.is_snapshot_saved and snapshots.is_position_noted
        )
        WALL_AHEAD.of(registry, space=space).read = lambda: round(host.journaled.wall_ahead_seconds, 3)
        if host.journal.is_written:
            host.journal.on_written = JOURNAL_WRITE.of(registry, space=space).observe
            host.journal.on_synced = JOURNAL_SYNC.of(registry, space=space).observe
            running = JOURNAL_SYNC_RUNNING.of(registry, space=space)
            running.read = lambda: host.journal.sync_running_seconds
        host.space.state.ledger.decision_timers = {
            each: DECISIONS.of(registry, space=space, outcome=each).observe for each in get_args(Decision)
        }

    def forget_space(self, host: SpaceHost) -> None:
        """It was archived or deleted."""
        self._hosts.remove(host)
        self.registry.remove(space=host.name)

    def watch_log(self, host: SpaceHost, logs: LogKeeper) -> None:
        """Where a log of the journal is kept."""
        LOG_SIGNED.of(self.registry, space=host.name).read = lambda: float(logs.is_signed(host.name))
        unwitnessed = LOG_UNWITNESSED.of(self.registry, space=host.name)
        unwitnessed.read = lambda: logs.unwitnessed_seconds(host.name)
        behind = LOG_BEHIND.of(self.registry, space=host.name)
        behind.read = lambda: host.journal.recorded - (host.journal.logged or 0)

    def exposition(self) -> str:
        """All of it, as Prometheus reads it; a text that took long to make may be a moment old."""
        if self._clock() < self._fresh_until:
            return self._text
        began = self._cpu_clock()
        for host in self._hosts:
            # What an fsync came to is looked at when there is something else to do; now there is.
            host.journal.process_syncs()
            for code, count in host.refusals.counts.items():
                REFUSALS.of(self.registry, space=host.name, code=code).value = count
        text = self.registry.exposition()
        took = self._cpu_clock() - began
        if took > _CHEAP_SECONDS:
            self._text, self._fresh_until = text, self._clock() + _REUSE_FACTOR * took
        return text
