"""Every conformance vector with its members on three gateways of a cluster on three NATS servers."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from moot.conformance.runner import Failed
from moot.conformance.vectors import vectors_in
from tests.conformance_vectors import FILES
from tests.gateway.cluster.nats_servers import NatsServers
from tests.gateway.cluster.spread_vectors import SpreadCluster, needs_own_journal


def run_spread_vectors(cases: int, seed: int) -> str:
    """All of them so many times. The seed says which gateway has the first member."""
    folder = Path(tempfile.mkdtemp(prefix="moot-spread-"))
    (folder / "nats").mkdir()
    servers = NatsServers(folder / "nats", 3)
    counts: Counter[str] = Counter()
    try:
        for number in range(cases):
            for file in FILES:
                name = f"r{number}-{file[:2]}"
                cluster = {"servers": servers.addresses, "name": name, "replicas": 3, "shards": 2}
                _play_file(folder / name, cluster, file, seed + number, counts)
    finally:
        servers.close()
        shutil.rmtree(folder, ignore_errors=True)
    return (
        f"{counts['passed']} vectors passed and none failed, {counts['spread']} of them with sockets on two "
        f"or three gateways, {counts['sockets']} sockets; {counts['differ']} that are about the journal of "
        "one gateway differ as documented"
    )


def _play_file(
    folder: Path, settings: dict[str, object], file: str, first: int, counts: Counter[str]
) -> None:
    vectors = {f"v{file[:2]}-{number}": vector for number, vector in enumerate(vectors_in(file))}
    cluster = SpreadCluster(folder, settings, vectors)
    try:
        for space, vector in vectors.items():
            if needs_own_journal(vector):
                with contextlib.suppress(Failed):
                    cluster.play(space, first)
                    raise AssertionError(f"{vector.name}: came out as if a gateway's own journal counted")
                counts["differ"] += 1
                continue
            sockets = cluster.play(space, first)
            counts["passed"] += 1
            counts["sockets"] += sum(sockets)
            counts["spread"] += sum(map(bool, sockets)) > 1
    finally:
        cluster.stop()
