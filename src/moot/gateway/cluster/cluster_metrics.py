"""What a gateway of a cluster tells on `/metrics` beside the rest; one that is alone has none of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moot.metrics import MetricTable, Registry

if TYPE_CHECKING:
    from moot.gateway.cluster.cluster_node import ClusterNode
    from moot.gateway.cluster.cluster_shard import Shard

_TABLE: Final = MetricTable()
SERVING: Final = _TABLE.gauge(
    "moot_cluster_serving", "1 while this gateway serves; 0 while it is cut off from the log."
)
NATS_CONNECTED: Final = _TABLE.gauge(
    "moot_cluster_nats_connected", "1 while this gateway is connected to a NATS server."
)
GATEWAYS: Final = _TABLE.gauge(
    "moot_cluster_gateways", "Gateways that live, as far as this one has read the log."
)
SHARDS: Final = _TABLE.gauge("moot_cluster_shards_served", "Shards of the log that this gateway serves.")
DIFFERENCES: Final = _TABLE.gauge(
    "moot_cluster_configuration_differences",
    "Spaces whose configuration in this gateway's file was another than the cluster's when it started.",
)
UNKNOWN_SPACES: Final = _TABLE.gauge(
    "moot_cluster_unknown_spaces",
    "Spaces of the log that are not in this gateway's file; while there are some, it stores no snapshots.",
)
LOG_AGE: Final = _TABLE.gauge(
    "moot_cluster_log_age_seconds",
    "Age of this gateway's heartbeat that came back last through the log.",
    "shard",
)
LOG_POSITION: Final = _TABLE.gauge(
    "moot_cluster_log_position", "The last message of the log that was applied.", "shard"
)
PENDING_INPUTS: Final = _TABLE.gauge(
    "moot_cluster_pending_inputs",
    "Inputs that wait to be written to the log or to come back from it.",
    "shard",
)
PENDING_BYTES: Final = _TABLE.gauge(
    "moot_cluster_pending_bytes", "Bytes that wait to be written to the log.", "shard"
)
READER_STARTS: Final = _TABLE.counter(
    "moot_cluster_reader_starts_total",
    "How often this gateway began to read the log: at its start, and after gaps and silence.",
    "shard",
)
SNAPSHOT_AGE: Final = _TABLE.gauge(
    "moot_cluster_snapshot_age_seconds",
    "Time of the log since its latest snapshot; without one, since this gateway began to read.",
    "shard",
)
LOG_MESSAGES: Final = _TABLE.gauge(
    "moot_cluster_log_messages",
    "Messages of the log since its latest snapshot, which a gateway that starts has to read.",
    "shard",
)
PUBLISH: Final = _TABLE.histogram(
    "moot_cluster_publish_seconds",
    "Time until NATS has acknowledged a message of the log, with all tries.",
    "shard",
)
CLOCK_OFFSET: Final = _TABLE.gauge(
    "moot_cluster_clock_offset_seconds",
    "How far the clock of the shard's leader in NATS is ahead of this gateway's, give or take half of the"
    " time that a message takes.",
    "shard",
)

CLUSTER_METRICS: Final = tuple(_TABLE.descriptions)


def watch_cluster(registry: Registry, node: ClusterNode) -> None:
    """Register the metrics of a gateway's place in its cluster; it has started."""
    SERVING.of(registry).read = lambda: not (node.is_stale or node.failed.done())
    NATS_CONNECTED.of(registry).read = lambda: node.status.is_connected
    GATEWAYS.of(registry).read = lambda: len(node.common.table.living())
    DIFFERENCES.of(registry).read = lambda: len(node.differences)
    UNKNOWN_SPACES.of(registry).read = lambda: sum(len(shard.unknown) for shard in node.served)
    SHARDS.of(registry).read = lambda: len(node.served)
    for shard in node.served:
        _watch_shard(registry, shard)
    node.on_served = lambda shard: _watch_shard(registry, shard)
    node.on_left = lambda shard: registry.remove(shard=str(shard.index))


def _watch_shard(registry: Registry, shard: Shard) -> None:
    shared, writer, index = shard.log, shard.log.writer, str(shard.index)
    LOG_AGE.of(registry, shard=index).read = lambda: round(shared.age_seconds, 3)
    LOG_POSITION.of(registry, shard=index).read = lambda: shared.position
    PENDING_INPUTS.of(registry, shard=index).read = lambda: writer.pending_inputs
    PENDING_BYTES.of(registry, shard=index).read = lambda: writer.queued_bytes
    READER_STARTS.of(registry, shard=index).read = lambda: shared.reader.restarts
    SNAPSHOT_AGE.of(registry, shard=index).read = lambda: round(shard.clock.latest - shard.stored.time, 3)
    LOG_MESSAGES.of(registry, shard=index).read = lambda: shared.position - shard.stored.position
    writer.on_published = PUBLISH.of(registry, shard=index).observe
    CLOCK_OFFSET.of(registry, shard=index).read = lambda: round(shared.clock_offset_seconds, 3)
