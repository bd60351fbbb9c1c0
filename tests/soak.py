"""`make soak`: the long counts. Each line is a figure; the first fault stops it with a traceback."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from tests.agents.acp.agent_kills_soak import run_agent_kills
from tests.bridges.space.conformance_soak import run_conformance
from tests.console.firefox_soak import run_firefox
from tests.console.pending_soak import run_pending
from tests.examples import run_properties
from tests.gateway.cluster.cluster_soak import run_cluster_faults, run_planted_faults
from tests.gateway.cluster.effect_kills import run_effect_key_kills
from tests.gateway.cluster.log_failovers import run_log_failovers
from tests.gateway.cluster.log_step_kills import run_log_step_kills
from tests.gateway.cluster.sharing_soak import run_planted_sharing_faults, run_sharing_faults
from tests.gateway.cluster.spread_soak import run_spread_vectors
from tests.gateway.conformance_command_soak import run_conformance_command
from tests.gateway.fault_soak import run_clock_jumps, run_disk_faults, run_floods
from tests.gateway.hosting.crash_soak import run_gateway_crashes
from tests.gateway.hosting.execution_soak import run_execution_kills
from tests.gateway.hosting.lost_files_soak import run_lost_files
from tests.preview.effect_soak import run_effect_kills, run_effect_races, run_effects
from tests.protocol.decoder_soak import run_decoder_soak
from tests.protocol.pattern_soak import run_pattern_soak
from tests.protocol.scan_envelope_soak import run_scan_envelope_soak
from tests.space.random_walk import run_space_walk
from tests.store.crash_soak import run_journal_crashes
from tests.trust.learning.rule_mutants import run_mutants
from tests.trust.learning.value_probes import run_probes
from tests.xprotocol.events.event_soak import run_event_soak
from tests.xprotocol.grammar.grammar_soak import run_grammar_soak
from tests.xprotocol.grammar.schema_suite import run_schema_suite

# Name, what runs, and how many cases make the full count.
SOAKS: dict[str, tuple[Callable[[int, int], str], int]] = {
    "patterns": (run_pattern_soak, 4_000_000),
    "decoder": (run_decoder_soak, 2_000_000),
    "scan_envelope": (run_scan_envelope_soak, 4_000_000),
    "space": (run_space_walk, 300_000),
    "journal": (run_journal_crashes, 100),
    "gateway": (run_gateway_crashes, 100),
    "conformance_command": (run_conformance_command, 2),
    "executions": (run_execution_kills, 60),
    "agents": (run_agent_kills, 120),
    "cluster": (run_cluster_faults, 240),
    "log_failovers": (run_log_failovers, 50),
    "log_steps": (run_log_step_kills, 52),
    "cluster_planted": (run_planted_faults, 2),
    "sharing": (run_sharing_faults, 200),
    "sharing_planted": (run_planted_sharing_faults, 4),
    "effect_key_kills": (run_effect_key_kills, 60),
    "spread_vectors": (run_spread_vectors, 1),
    "lost_files": (run_lost_files, 1_000),
    "disks": (run_disk_faults, 200),
    "clocks": (run_clock_jumps, 200),
    "floods": (run_floods, 60),
    "rules": (run_probes, 100_000),
    "rule_mutants": (run_mutants, 120_000),
    "events": (run_event_soak, 1_000_000),
    "grammars": (run_grammar_soak, 20_000),
    "schema_suite": (run_schema_suite, 1),
    "conformance": (run_conformance, 3),
    "firefox": (run_firefox, 1),
    "pending": (run_pending, 100_000),
    "effects": (run_effects, 1_000),
    "effect_races": (run_effect_races, 1_000),
    "effect_kills": (run_effect_kills, 30),
    "properties": (run_properties, 200),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--only", choices=SOAKS, help="one of the soaks")
    parser.add_argument("--share", type=float, default=1.0, help="this share of the full counts (default 1)")
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="default: the time; printed with each line"
    )
    chosen = parser.parse_args()
    for name, (run, cases) in SOAKS.items():
        if chosen.only in (None, name):
            start = time.monotonic()
            summary = run(max(1, int(cases * chosen.share)), chosen.seed)
            print(f"{name}: {summary} (seed {chosen.seed}, {time.monotonic() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
