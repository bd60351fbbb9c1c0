"""Settings that files of earlier versions have and that are none any more (decision 0171).

A file that names one still works: the key is left out before the file is read, and one line says what holds
instead. The lists are data, a line each: the path of the key, `*` for any name, and what holds now.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from moot.config.section_reader import at
from moot.protocol.operation import Json

Former = Mapping[str, Json]

# Of a moot.yaml; in a space.yaml, what is below `spaces.*` here stands at the top or below `space`.
MOOT: Final[Former] = {
    "gateway.read_slice_bytes": 64 << 10,
    "gateway.read_slice_frames": 1_000,
    "gateway.read_slice_seconds": 0.001,
    "gateway.read_turn_seconds": 0.002,
    "gateway.join_seconds": 10,
    "gateway.max_join_bytes": 8_192,
    "gateway.sign_in_link_seconds": 600,
    "gateway.sign_in_links_per_minute": 10,
    "gateway.max_sign_in_links": 256,
    "gateway.minted_tokens_per_minute": 60,
    "gateway.max_header_bytes": 16_384,
    "gateway.max_headers": 100,
    "gateway.header_seconds": 10,
    "gateway.response_seconds": 30,
    "gateway.max_message_fragments": 4_352,
    "gateway.ping_seconds": 20,
    "gateway.ping_timeout_seconds": 20,
    "gateway.outbox_messages": 4_096,
    "gateway.outbox_seconds": 10,
    "gateway.close_seconds": 3,
    "gateway.history_pages_per_second": 10,
    "gateway.max_history_page_messages": 500,
    "gateway.max_history_page_bytes": 1 << 20,
    "gateway.max_history_scan_bytes": 8 << 20,
    "gateway.smtp.timeout_seconds": 15,
    "gateway.notifications.scan_seconds": 2,
    "gateway.notifications.timeout_seconds": 10,
    "gateway.notifications.retry_first_seconds": 2,
    "gateway.notifications.max_retry_seconds": 300,
    "gateway.notifications.max_retry_after_seconds": 3_600,
    "gateway.notifications.max_queued": 1_000,
    "gateway.notifications.max_summary_entries": 10,
    "gateway.notifications.receivers.*.max_argument_chars": 500,
    "gateway.notifications.receivers.*.max_separate_messages": 3,
    "gateway.notifications.push.max_separate_messages": 3,
    "gateway.notifications.push.keep_seconds": 86_400,
    "gateway.notifications.push.max_devices_per_participant": 8,
    "gateway.notifications.push.max_subscribes_per_minute": 10,
    "gateway.tls.check_seconds": 60,
    "gateway.oidc.keys_refresh_seconds": 300,
    "gateway.oidc.keys_retry_seconds": 10,
    "gateway.oidc.keys_max_age_seconds": 86_400,
    "gateway.oidc.renew_grace_seconds": 60,
    "spaces.*.limits.max_open_proposal_bytes": 4 << 20,
    "spaces.*.limits.max_proposal_decimals": 10_000,
    "spaces.*.limits.max_proposal_page_bytes": 256 << 10,
    "spaces.*.limits.poll_presence_seconds": 30,
    "spaces.*.limits.max_announced_bytes_per_member": 128 << 10,
    "spaces.*.limits.max_announced_bytes": 4 << 20,
    "spaces.*.limits.max_settle_note_chars": 2_000,
    "spaces.*.limits.max_settled_proposals": 10_000,
    "spaces.*.limits.max_stream_targets": 256,
    "spaces.*.limits.max_stream_request_bytes": 16_384,
    "spaces.*.limits.max_stream_writers": 256,
    "spaces.*.limits.max_stream_bytes_per_member": 65_536,
    "spaces.*.limits.stream_owner_grace_seconds": 60,
    "spaces.*.limits.max_grants_per_member": 256,
    "spaces.*.limits.max_capabilities_per_grant": 64,
    "spaces.*.limits.max_granted_capabilities": 512,
    "spaces.*.limits.max_granted_capability_bytes": 65_536,
    "spaces.*.limits.max_grant_expiry_seconds": 366 * 86_400,
    "spaces.*.limits.max_grant_uses": 1_000_000,
    "spaces.*.limits.max_listed_member_bytes": 8_192,
    "spaces.*.limits.max_welcome_bytes": 262_144,
    "spaces.*.limits.shutdown_grace_seconds": 5,
    "spaces.*.limits.max_id_chars": 256,
    "spaces.*.limits.max_kind_chars": 256,
    "spaces.*.limits.max_extended_kind_chars": 2048,
    "spaces.*.limits.max_context_chars": 1024,
    "spaces.*.limits.max_recipients": 1024,
    "spaces.*.limits.max_correlations": 256,
    "gateway.poll_messages": 1_000,
    "gateway.poll_bytes": 8 << 20,
    "gateway.errors_per_second": 10,
    "gateway.snapshot_records": 20_000,
    "gateway.journal.segment_bytes": 64 << 20,
    "gateway.journal.sync_seconds": 0.005,
    "gateway.journal.sync_records": 64,
    "gateway.journal.sync_timeout_seconds": 5,
    "gateway.journal.refused_records_per_minute": 120,
    "gateway.journal.refused_bytes_per_hour": 1 << 20,
    "gateway.journal.refused_count_seconds": 60,
    "gateway.log.file_bytes": 16 << 20,
    "gateway.cluster.max_batch_inputs": 256,
    "gateway.cluster.max_pending_bytes": 16 << 20,
    "gateway.mcp.idle_seconds": 600,
    "gateway.max_content_bytes": 32 << 20,
    "gateway.outbox_bytes": 16 << 20,
    "gateway.oidc.skew_seconds": 30,
    "gateway.notifications.receivers.*.max_messages_per_minute": 6,
    "gateway.notifications.push.max_messages_per_minute": 6,
    "gateway.wrong_tokens_per_minute": 60,
    "gateway.oidc.algorithms": "every asymmetric one",
    "gateway.joins_per_second": 50,
    "gateway.max_auto_spaces": 100,
    "gateway.smtp.max_invitations_per_minute": 10,
    "gateway.log.max_old_files": 5,
    "gateway.oidc.introspection.interval_seconds": 30,
    "gateway.notifications.push.max_devices": 200,
    "gateway.cluster.connect_seconds": 30,
    "gateway.cluster.frame_stale_seconds": 1,
    "gateway.max_body_bytes": "twice max_bytes of the space",
}
_OF_SPACES: Final = "spaces.*."
SPACE: Final[Former] = {
    f"{place}{path.removeprefix(_OF_SPACES)}" if path.startswith(_OF_SPACES) else path: value
    for path, value in MOOT.items()
    for place in ("", "space.")
}
# Of the configuration file of the adapter.
ADAPTER: Final[Former] = {
    "limits.max_senders": 50_000,
    "limits.max_subscriptions": 1_024,
    "limits.max_subscriptions_per_sender": 64,
    "limits.announce_debounce_seconds": 1.0,
    "limits.announce_interval_seconds": 1_800.0,
    "limits.min_refresh_interval_seconds": 5.0,
    "limits.answer_seconds": 300.0,
    "limits.max_seen_events": 1_000_000,
    "limits.max_describe_results": 100,
    "limits.discovery_seconds": 15.0,
    "limits.max_discovery_bytes": 8 << 20,
    "limits.max_listed": 2_000,
    "limits.max_tools_per_endpoint": 1_000,
    "limits.max_outbound_calls": 256,
    "limits.stop_seconds": 5.0,
    "limits.resource_poll_seconds": 30.0,
    "audit.file_bytes": 16 << 20,
    "audit.max_buffered_bytes": 8 << 20,
    "audit.max_old_files": 20,
    "search": "by words alone",
}


def without_former(document: Json, former: Former) -> tuple[Json, list[str]]:
    """A copy of a document without what was a setting once, and a line about each that it had."""
    notes: list[str] = []
    for path, value in former.items():
        document = _without(document, path.split("."), "", value, notes)
    return document, notes


def _without(node: Json, steps: list[str], place: str, value: Json, notes: list[str]) -> Json:
    if isinstance(node, list):
        return [_without(each, steps, f"{place}[{n}]", value, notes) for n, each in enumerate(node)]
    if not isinstance(node, dict):
        return node
    if len(steps) > 1:
        changed = {
            key: _without(node[key], steps[1:], at(place, str(key)), value, notes)
            for key in _meant(node, steps[0])
        }
        return {**node, **changed} if changed else node
    gone = list(_meant(node, steps[0]))
    holds = value if isinstance(value, str) else json.dumps(value)
    for key in gone:
        note = f"{at(place, str(key))} is not a setting any more: it is {holds}"
        written = json.dumps(node[key], default=str)
        # It may have been stricter: who reads this has to see what changes.
        notes.append(note if node[key] == value else f"{note}, and not {written[:80]}")
    return {key: each for key, each in node.items() if key not in gone} if gone else node


def _meant(node: Mapping[Json, Json], step: str) -> Iterator[Json]:
    return (key for key in node if step in ("*", key))
