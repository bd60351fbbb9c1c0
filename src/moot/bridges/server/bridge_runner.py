"""Running bridges: one in the foreground, or many in one process, each on its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from moot.box.boxed_child import Box, boxed
from moot.bridges.server.box_reports import BoxReports
from moot.bridges.server.bridge_settings import BridgeSettings
from moot.bridges.server.overlay_previews import OverlayPreviews
from moot.bridges.server.server_member import ServerMember
from moot.bridges.server.server_sign_in import ServerSignIn
from moot.bridges.server.standby import is_absent
from moot.errors import UsageError
from moot.mcp.tool_pins import Pins
from moot.mcp.upstream import HttpServer, StartFailed, StdioServer, Upstream, open_upstream
from moot.participant import Control, Controls, connect
from moot.resilience.task_set import end_tasks


class ServerControls(Controls):
    """The controls of a bridged server: a restart restarts the server."""

    def __init__(self, member: ServerMember) -> None:
        self._member = member

    async def on_restart(self, control: Control) -> None:  # noqa: ARG002
        self._member.upstream.restart()


@asynccontextmanager
async def bridged(
    settings: BridgeSettings, *, on_opened: Callable[[Upstream], None] | None = None
) -> AsyncIterator[ServerMember]:
    """An MCP server as a member of a space while the block runs.

    Whatever the server does raises nothing here: see `member.upstream`. Entering raises StartFailed if the
    server `must_start` and does not (unless it waits for a sign-in), NotAdmitted or Unreachable if the space
    cannot be joined, UsageError if the files of pins or sign-ins cannot be used. Any number may run in one
    process.

    `on_opened` is given the server as soon as it is started, before it has answered anything.
    """
    if settings.config.plans and settings.config.credentials != "server":
        raise UsageError("plans are made with the account of the bridge: credentials has to be server")
    pins = Pins(settings.server.label, settings.pins_file, withhold=settings.config.pin)
    server, sign_in, options = settings.server, None, settings.upstream
    if settings.secrets is not None:
        settings.secrets.check_box(has_box=settings.box is not None)
        server = await settings.secrets.fill_server(server)
        options = replace(options, call_filter=settings.secrets)
    if isinstance(server, HttpServer) and settings.oauth is not None:
        sign_in = ServerSignIn(
            server,
            settings.oauth,
            space=settings.space,
            options=options,
            credentials=settings.config.credentials,
        )
        server = replace(server, auth=sign_in.credential)
    elif settings.config.credentials != "server":
        raise UsageError("only a server with a URL is called with accounts of members")
    reports = overlay = None
    if settings.box is not None and isinstance(server, StdioServer):
        reports = BoxReports(settings.box, server.label)
        fill_head = None if settings.secrets is None else settings.secrets.fill_head
        box = replace(settings.box, report=reports.add, widened=reports.widenings, fill_head=fill_head)
        overlay = _overlay(settings, box)
        server = boxed(server, box)
        if overlay is not None:
            server = overlay.pause.watch(server)
    member = ServerMember(
        server,
        pins,
        accept_changes=settings.accept_changes,
        sign_in=sign_in,
        box_reports=reports,
        has_secrets=settings.secrets is not None,
        overlay=overlay,
        plans=settings.config.plans,
    )
    async with open_upstream(server, options, member.callbacks()) as upstream:
        if on_opened is not None:
            on_opened(upstream)
        # It joins while the server starts, so that callers know of it and wait. But whoever serves under this
        # name goes on until the new server can, and is not thrown out by one that does not start.
        join_first = await is_absent(settings)
        if not join_first:
            await _wait_until_ready(upstream, settings, sign_in, reports)
        async with connect(
            settings.gateway,
            settings.space,
            settings.token,
            name=settings.name,
            dialect=settings.dialect,
            limits=settings.member,
            controls=ServerControls(member),
            # A bridge only answers: echoes of its own messages would wake it once more for every call.
            echo=False,
        ) as space:
            member.attach(upstream, space)
            work = asyncio.create_task(member.run())
            try:
                if join_first:
                    await _wait_until_ready(upstream, settings, sign_in, reports)
                yield member
            finally:
                await end_tasks([work])
                if sign_in is not None and sign_in.personal is not None:
                    await sign_in.personal.close()


def _overlay(settings: BridgeSettings, box: Box) -> OverlayPreviews | None:
    """What tries proposed calls, where that is wanted; raises UsageError."""
    if not box.config.preview or not box.config.write or not isinstance(settings.server, StdioServer):
        return None
    if box.home is None:
        raise UsageError("its box: a preview needs a folder for what is applied")
    # Beside the homes of boxes, which are in the folder of the space that no box shows.
    folder = box.home.parent.parent / "effects" / box.home.name
    return OverlayPreviews(box, settings.server, folder, settings.secrets)


async def _wait_until_ready(
    upstream: Upstream,
    settings: BridgeSettings,
    sign_in: ServerSignIn | None,
    box_reports: BoxReports | None,
) -> None:
    """Wait for the first attempt to start; raises StartFailed if the server has to and does not."""
    try:
        await upstream.wait_until_ready()
    except StartFailed as failed:
        if box_reports is not None:
            box_reports.add_error("\n".join(failed.stderr_lines))
        is_waiting = sign_in is not None and sign_in.credential.waits_for is not None
        if settings.must_start and not is_waiting:
            raise
