"""Checks whether an MCP client can be connected over stdio."""

from __future__ import annotations

import logging
import os
import stat

from moot.xprotocol.adapter.config.adapter_settings import McpServerSettings

log = logging.getLogger(__name__)


def usable_listener_settings(settings: McpServerSettings | None) -> McpServerSettings | None:
    """The listener as configured; None for `stdio` where stdin or stdout is a device such as /dev/null.

    A service has no client there. Such a device cannot be polled: libuv aborts the process.
    """
    if settings is None or settings.transport != "stdio":
        return settings
    if all(_is_pollable(descriptor) for descriptor in (0, 1)):
        return settings
    log.info("no MCP client can be connected over stdio: serving XProtocol alone")
    return None


def _is_pollable(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return not stat.S_ISCHR(mode) or os.isatty(descriptor)
