"""A file of an adapter of an earlier version has limits that are no settings any more."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Final

from moot.config.former_settings import ADAPTER
from moot.xprotocol.adapter.config.config_loader import settings_from
from moot.xprotocol.endpoint import document_fetch

_PLACES: Final = {
    "adapter": ("answer_seconds",),
    "config.adapter_settings": ("announce_debounce_seconds",),
    "discovery.announcer": ("announce_interval_seconds",),
    "inbound.source_set": ("min_refresh_interval_seconds",),
    "inbound.mcp_source": ("max_listed",),
    "inbound.operation_runner": ("max_describe_results",),
    "inbound.request_handler": ("max_senders", "stop_seconds"),
    "inbound.resource_subscriptions": (
        "max_subscriptions",
        "max_subscriptions_per_sender",
        "resource_poll_seconds",
    ),
    "outbound.outbound": (
        "max_outbound_calls",
        "max_tools_per_endpoint",
    ),
}
_SECTIONS: Final = (
    ("audit", "adapter.telemetry.audit_log", ("file_bytes", "max_buffered_bytes", "max_old_files")),
)


def test_what_is_said_to_hold_holds() -> None:
    found: dict[str, Any] = {"search": "by words alone"}
    found |= {"limits.max_seen_events": import_module("moot.xprotocol.event_store.event_store").MAX_SEEN_IDS}
    for module, names in _PLACES.items():
        for name in names:
            found[f"limits.{name}"] = getattr(import_module(f"moot.xprotocol.adapter.{module}"), name.upper())
    for name in ("discovery_seconds", "max_discovery_bytes"):
        found[f"limits.{name}"] = getattr(document_fetch, name.upper())
    for section, module, names in _SECTIONS:
        for name in names:
            found[f"{section}.{name}"] = getattr(import_module(f"moot.xprotocol.{module}"), name.upper())
    assert found == ADAPTER


def test_a_file_with_such_limits_is_read_and_a_line_says_so(tmp_path: Path) -> None:
    document: dict[str, Any] = {
        "identity": {"key_file": "adapter.key"},
        "relay": {"urls": ["ws://127.0.0.1:1"]},
        "limits": {"stop_seconds": 1, "max_calls": 3},
    }
    loaded = settings_from(document, folder=tmp_path, environ={}, file=tmp_path / "adapter.yml")
    assert loaded.problems == ()
    assert loaded.settings is not None
    assert loaded.settings.limits.max_calls == 3
    assert "limits.stop_seconds is not a setting any more: it is 5.0, and not 1" in loaded.settings.notes
