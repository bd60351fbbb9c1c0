"""What was a setting once is a constant now: where each is, and tests that need another value."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from moot.config.strict_yaml import read_yaml
from moot.errors import UsageError
from moot.protocol.operation import Json

_NOTIFICATIONS: Final = "moot.gateway.notifications"
_RECEIVERS: Final = "gateway.notifications.receivers.*"
_PUSH: Final = "gateway.notifications.push"
# The path in a moot.yaml → the module and its constant.
CONSTANTS: Final[Mapping[str, str]] = {
    "gateway.read_slice_bytes": "moot.net.read_schedule.SLICE_BYTES",
    "gateway.read_slice_frames": "moot.net.read_schedule.SLICE_FRAMES",
    "gateway.read_slice_seconds": "moot.net.read_schedule.SLICE_SECONDS",
    "gateway.read_turn_seconds": "moot.net.read_schedule.TURN_SECONDS",
    "gateway.join_seconds": "moot.gateway.websocket_handler.JOIN_SECONDS",
    "gateway.max_join_bytes": "moot.gateway.websocket_handler.MAX_JOIN_BYTES",
    "gateway.sign_in_link_seconds": "moot.gateway.sign_in.sign_in_links.VALID_SECONDS",
    "gateway.sign_in_links_per_minute": "moot.gateway.http.sign_in_routes.LINKS_PER_MINUTE",
    "gateway.max_sign_in_links": "moot.gateway.sign_in.sign_in_links.MAX_LINKS",
    "gateway.minted_tokens_per_minute": "moot.gateway.access_limiter.MINTED_TOKENS_PER_MINUTE",
    "gateway.max_header_bytes": "moot.net.http_protocol.MAX_HEADER_BYTES",
    "gateway.max_headers": "moot.net.http_protocol.MAX_HEADERS",
    "gateway.header_seconds": "moot.net.http_protocol.HEADER_SECONDS",
    "gateway.response_seconds": "moot.net.http_protocol.RESPONSE_SECONDS",
    "gateway.max_message_fragments": "moot.net.websocket_server.MAX_MESSAGE_FRAGMENTS",
    "gateway.ping_seconds": "moot.net.websocket_server.PING_SECONDS",
    "gateway.ping_timeout_seconds": "moot.net.websocket_server.PING_TIMEOUT_SECONDS",
    "gateway.outbox_messages": "moot.gateway.websocket_handler.OUTBOX_MESSAGES",
    "gateway.outbox_seconds": "moot.net.outbox.MAX_SECONDS",
    "gateway.close_seconds": "moot.net.websocket_server.CLOSE_SECONDS",
    "gateway.history_pages_per_second": "moot.gateway.http.history_routes.PAGES_PER_SECOND",
    "gateway.max_history_page_messages": "moot.gateway.hosting.journal_history.MAX_PAGE_MESSAGES",
    "gateway.max_history_page_bytes": "moot.gateway.hosting.journal_history.MAX_PAGE_BYTES",
    "gateway.max_history_scan_bytes": "moot.gateway.hosting.journal_history.MAX_SCAN_BYTES",
    "gateway.smtp.timeout_seconds": "moot.gateway.mailer.TIMEOUT_SECONDS",
    "gateway.outbox_bytes": "moot.gateway.websocket_handler.OUTBOX_BYTES",
    "gateway.oidc.skew_seconds": "moot.gateway.sign_in.token_verifier.SKEW_SECONDS",
    f"{_RECEIVERS}.max_messages_per_minute": f"{_NOTIFICATIONS}.schedule.MAX_MESSAGES_PER_MINUTE",
    f"{_PUSH}.max_messages_per_minute": f"{_NOTIFICATIONS}.schedule.MAX_MESSAGES_PER_MINUTE",
    "spaces.*.limits.max_open_proposal_bytes": "moot.space.acts.proposals.MAX_OPEN_BYTES",
    "spaces.*.limits.max_proposal_decimals": "moot.space.acts.proposals.MAX_DECIMALS",
    "spaces.*.limits.max_proposal_page_bytes": "moot.space.acts.proposal_listing.MAX_PAGE_BYTES",
    "spaces.*.limits.poll_presence_seconds": "moot.space.acts.membership.POLL_PRESENCE_SECONDS",
    "spaces.*.limits.max_announced_bytes_per_member": "moot.space.proposals.offer_owners.MAX_MEMBER_BYTES",
    "spaces.*.limits.max_announced_bytes": "moot.space.proposals.offer_owners.MAX_BYTES",
    "spaces.*.limits.max_settle_note_chars": "moot.space.acts.proposals.MAX_NOTE_CHARS",
    "spaces.*.limits.max_settled_proposals": "moot.space.proposals.proposal_ledger.MAX_SETTLED",
    "spaces.*.limits.max_stream_targets": "moot.space.acts.streams.MAX_TARGETS",
    "spaces.*.limits.max_stream_request_bytes": "moot.space.acts.streams.MAX_REQUEST_BYTES",
    "spaces.*.limits.max_stream_writers": "moot.space.acts.streams.MAX_WRITERS",
    "spaces.*.limits.max_stream_bytes_per_member": "moot.space.acts.streams.MAX_BYTES_PER_MEMBER",
    "spaces.*.limits.stream_owner_grace_seconds": "moot.space.acts.streams.OWNER_GRACE_SECONDS",
    "spaces.*.limits.max_grants_per_member": "moot.space.acts.grants.MAX_GRANTS_PER_MEMBER",
    "spaces.*.limits.max_capabilities_per_grant": "moot.space.grants.grant_limits.MAX_CAPABILITIES",
    "spaces.*.limits.max_granted_capabilities": "moot.space.acts.grants.MAX_GRANTED",
    "spaces.*.limits.max_granted_capability_bytes": "moot.space.grants.grant_limits.MAX_CAPABILITY_BYTES",
    "spaces.*.limits.max_grant_expiry_seconds": "moot.space.grants.grant_limits.MAX_EXPIRY_SECONDS",
    "spaces.*.limits.max_grant_uses": "moot.space.grants.grant_limits.MAX_USES",
    "spaces.*.limits.max_listed_member_bytes": "moot.space.members.listing.MAX_MEMBER_BYTES",
    "spaces.*.limits.max_welcome_bytes": "moot.space.members.listing.MAX_WELCOME_BYTES",
    "spaces.*.limits.shutdown_grace_seconds": "moot.space.acts.control.SHUTDOWN_GRACE_SECONDS",
    "spaces.*.limits.max_id_chars": "moot.protocol.envelope.MAX_ID_CHARS",
    "spaces.*.limits.max_kind_chars": "moot.protocol.envelope.MAX_KIND_CHARS",
    "spaces.*.limits.max_extended_kind_chars": "moot.protocol.envelope.MAX_EXTENDED_KIND_CHARS",
    "spaces.*.limits.max_context_chars": "moot.protocol.envelope.MAX_CONTEXT_CHARS",
    "spaces.*.limits.max_recipients": "moot.protocol.envelope.MAX_RECIPIENTS",
    "spaces.*.limits.max_correlations": "moot.protocol.envelope.MAX_CORRELATIONS",
    "gateway.poll_messages": "moot.gateway.space_factory.POLL_MESSAGES",
    "gateway.poll_bytes": "moot.gateway.space_factory.POLL_BYTES",
    "gateway.max_content_bytes": "moot.protocol.large_content.MAX_CONTENT_BYTES",
    "gateway.errors_per_second": "moot.gateway.hosting.message_refusals.ERRORS_PER_SECOND",
    "gateway.snapshot_records": "moot.gateway.hosting.journaled_space.SNAPSHOT_RECORDS",
    "gateway.journal.segment_bytes": "moot.store.file_journal.SEGMENT_BYTES",
    "gateway.journal.sync_seconds": "moot.store.file_journal.SYNC_SECONDS",
    "gateway.journal.sync_records": "moot.store.file_journal.SYNC_RECORDS",
    "gateway.journal.sync_timeout_seconds": "moot.store.journal.SYNC_TIMEOUT_SECONDS",
    "gateway.journal.refused_records_per_minute": "moot.gateway.hosting.message_refusals.RECORDS_PER_MINUTE",
    "gateway.journal.refused_bytes_per_hour": "moot.gateway.hosting.message_refusals.BYTES_PER_HOUR",
    "gateway.journal.refused_count_seconds": "moot.gateway.hosting.message_refusals.COUNT_SECONDS",
    "gateway.log.file_bytes": "moot.logs.FILE_BYTES",
    "gateway.cluster.max_batch_inputs": "moot.gateway.cluster.nats.log_writer.MAX_BATCH_INPUTS",
    "gateway.cluster.max_pending_bytes": "moot.gateway.cluster.cluster_node.MAX_PENDING_BYTES",
    "gateway.mcp.idle_seconds": "moot.bridges.people.people_server.IDLE_SECONDS",
    "gateway.notifications.scan_seconds": f"{_NOTIFICATIONS}.sender.SCAN_SECONDS",
    "gateway.notifications.timeout_seconds": f"{_NOTIFICATIONS}.channels.TIMEOUT_SECONDS",
    "gateway.notifications.retry_first_seconds": f"{_NOTIFICATIONS}.sender.RETRY_FIRST_SECONDS",
    "gateway.notifications.max_retry_seconds": f"{_NOTIFICATIONS}.sender.MAX_RETRY_SECONDS",
    "gateway.notifications.max_retry_after_seconds": f"{_NOTIFICATIONS}.sender.MAX_RETRY_AFTER_SECONDS",
    "gateway.notifications.max_queued": f"{_NOTIFICATIONS}.sender.MAX_QUEUED",
    "gateway.notifications.max_summary_entries": f"{_NOTIFICATIONS}.sender.MAX_SUMMARY_ENTRIES",
    f"{_RECEIVERS}.max_argument_chars": f"{_NOTIFICATIONS}.sender.MAX_ARGUMENT_CHARS",
    f"{_RECEIVERS}.max_separate_messages": f"{_NOTIFICATIONS}.schedule.MAX_SEPARATE_MESSAGES",
    f"{_PUSH}.max_separate_messages": f"{_NOTIFICATIONS}.schedule.MAX_SEPARATE_MESSAGES",
    f"{_PUSH}.keep_seconds": f"{_NOTIFICATIONS}.push.channel.KEEP_SECONDS",
    f"{_PUSH}.max_devices_per_participant": f"{_NOTIFICATIONS}.push.devices.MAX_DEVICES_PER_PARTICIPANT",
    f"{_PUSH}.max_subscribes_per_minute": "moot.gateway.http.push_routes.SUBSCRIBES_PER_MINUTE",
    "gateway.tls.check_seconds": "moot.net.server_tls.CHECK_SECONDS",
    "gateway.wrong_tokens_per_minute": "moot.gateway.access_limiter.WRONG_TOKENS_PER_MINUTE",
    "gateway.joins_per_second": "moot.gateway.access_limiter.JOINS_PER_SECOND",
    "gateway.max_auto_spaces": "moot.gateway.space_factory.MAX_AUTO_SPACES",
    "gateway.smtp.max_invitations_per_minute": "moot.gateway.mailer.MAX_INVITATIONS_PER_MINUTE",
    "gateway.log.max_old_files": "moot.logs.MAX_OLD_FILES",
    "gateway.oidc.introspection.interval_seconds": "moot.gateway.sign_in.introspection.INTERVAL_SECONDS",
    f"{_PUSH}.max_devices": f"{_NOTIFICATIONS}.push.devices.MAX_DEVICES",
    "gateway.cluster.frame_stale_seconds": "moot.gateway.cluster.cluster_frames.FRAME_STALE_SECONDS",
    "gateway.cluster.connect_seconds": "moot.gateway.cluster.nats.nats_connection.CONNECT_SECONDS",
    "gateway.oidc.keys_refresh_seconds": "moot.gateway.sign_in.provider_keys.REFRESH_SECONDS",
    "gateway.oidc.keys_retry_seconds": "moot.gateway.sign_in.provider_keys.RETRY_SECONDS",
    "gateway.oidc.keys_max_age_seconds": "moot.gateway.sign_in.provider_keys.MAX_AGE_SECONDS",
    "gateway.oidc.renew_grace_seconds": "moot.gateway.sign_in.sign_in_service.RENEW_GRACE_SECONDS",
}


def value_of(constant: str) -> Any:
    module, _, name = constant.rpartition(".")
    return getattr(importlib.import_module(module), name)


_LIMITS: Final = "spaces.*.limits."
# Undone after each test.
OF_THIS_TEST: Final = pytest.MonkeyPatch()
# What gateways in this process were started with, the newest last, and what held before any of them.
_RUNNING: Final[list[dict[str, Json]]] = []
_ORIGINAL: Final[dict[str, Any]] = {}


def without_constants(settings: Mapping[str, Json]) -> dict[str, Json]:
    """Settings of a space; limits among them that are constants now are changed until the test ends."""
    limits = settings.get("limits", {})
    change_constants({_LIMITS + name: value for name, value in limits.items() if _LIMITS + name in CONSTANTS})
    kept = {name: value for name, value in limits.items() if _LIMITS + name not in CONSTANTS}
    return {**settings, "limits": kept}


def change_constants(values: Mapping[str, Json]) -> None:
    """These constants until the test ends, by the paths that they had as settings."""
    for path, value in values.items():
        if value_of(CONSTANTS[path]) != value:
            OF_THIS_TEST.setattr(CONSTANTS[path], value)


def constants_of(file: Path) -> dict[str, Json]:
    """What a file of an earlier version would have set, by the constants that they are now."""
    try:
        return {CONSTANTS[path]: value for path, value in _named_in(file).items()}
    except (OSError, UsageError):
        return {}  # a test of a file that cannot be read


def use_constants_of(file: Path) -> None:
    """The constants as a file of an earlier version would have set them, until the test ends."""
    change_constants(_named_in(file))


@contextmanager
def former_constants(file: Path) -> Iterator[None]:
    """The constants as a file of an earlier version would have set them, for gateways in this process."""
    with changed_constants(_named_in(file)):
        yield


@contextmanager
def changed_constants(values: Mapping[str, Json]) -> Iterator[None]:
    """These constants, by the paths that they had as settings."""
    """Gateways of one test may end in any order: each constant is what the newest that runs asked for."""
    changed = {CONSTANTS[path]: value for path, value in values.items()}
    for constant in changed:
        _ORIGINAL.setdefault(constant, value_of(constant))
    _RUNNING.append(changed)
    _set(changed)
    try:
        yield
    finally:
        # By identity: two may have asked for the same.
        del _RUNNING[next(n for n, each in enumerate(_RUNNING) if each is changed)]
        _set(changed)


def _set(constants: Iterable[str]) -> None:
    for constant in constants:
        module, _, name = constant.rpartition(".")
        asked = [each[constant] for each in _RUNNING if constant in each]
        setattr(importlib.import_module(module), name, asked[-1] if asked else _ORIGINAL[constant])


def _named_in(file: Path) -> dict[str, Json]:
    document = read_yaml(file.read_text("utf-8"))
    return {path: found for path in CONSTANTS for found in _values(document, path)}


def _values(node: Json, path: str) -> Iterator[Json]:
    step, _, rest = path.partition(".")
    for each in node if isinstance(node, list) else [node]:
        for key, inner in each.items() if isinstance(each, dict) else ():
            if step in ("*", key):
                yield from _values(inner, rest) if rest else [inner]
