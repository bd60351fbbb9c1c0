"""What was a setting once is a constant now: where each is, and tests that need another value."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from moot.config.strict_yaml import read_yaml
from moot.protocol.operation import Json

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
    "gateway.ping_timeout_seconds": "moot.net.websocket_server.PING_TIMEOUT_SECONDS",
    "gateway.outbox_messages": "moot.gateway.websocket_handler.OUTBOX_MESSAGES",
    "gateway.outbox_seconds": "moot.net.outbox.MAX_SECONDS",
    "gateway.close_seconds": "moot.net.websocket_server.CLOSE_SECONDS",
    "gateway.history_pages_per_second": "moot.gateway.http.history_routes.PAGES_PER_SECOND",
    "gateway.max_history_page_messages": "moot.gateway.hosting.journal_history.MAX_PAGE_MESSAGES",
    "gateway.max_history_page_bytes": "moot.gateway.hosting.journal_history.MAX_PAGE_BYTES",
    "gateway.max_history_scan_bytes": "moot.gateway.hosting.journal_history.MAX_SCAN_BYTES",
    "gateway.smtp.timeout_seconds": "moot.gateway.mailer.TIMEOUT_SECONDS",
}


def value_of(constant: str) -> Any:
    module, _, name = constant.rpartition(".")
    return getattr(importlib.import_module(module), name)


@contextmanager
def former_constants(file: Path) -> Iterator[None]:
    """The constants as a file of an earlier version would have set them, for gateways in this process."""
    document = read_yaml(file.read_text("utf-8"))
    with changed_constants({path: found for path in CONSTANTS for found in _values(document, path)}):
        yield


@contextmanager
def changed_constants(values: Mapping[str, Json]) -> Iterator[None]:
    """These constants, by the paths that they had as settings."""
    with pytest.MonkeyPatch.context() as process:
        for path, value in values.items():
            process.setattr(CONSTANTS[path], value)
        yield


def _values(node: Json, path: str) -> Iterator[Json]:
    step, _, rest = path.partition(".")
    for each in node if isinstance(node, list) else [node]:
        for key, inner in each.items() if isinstance(each, dict) else ():
            if step in ("*", key):
                yield from _values(inner, rest) if rest else [inner]
