"""Whether anybody can be at our standard streams."""

from __future__ import annotations

import logging
import os
import stat

from moot.adapter.config.adapter_settings import McpServerSettings

log = logging.getLogger(__name__)


def usable_listener(settings: McpServerSettings | None) -> McpServerSettings | None:
    """The listener as configured; None for `stdio` where stdin or stdout is a device such as /dev/null.

    A service has no client there. And nobody can wait for such a device: libuv ends the process if asked to.
    """
    if settings is None or settings.transport != "stdio":
        return settings
    if all(_can_be_waited_for(descriptor) for descriptor in (0, 1)):
        return settings
    log.info("no MCP client can be at the standard streams: serving XProtocol alone")
    return None


def _can_be_waited_for(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return not stat.S_ISCHR(mode) or os.isatty(descriptor)
