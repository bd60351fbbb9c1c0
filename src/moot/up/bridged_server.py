"""An MCP server of a space, bridged in this process: it joins, is kept running, and its stderr is kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from moot.box.boxed_child import Box
from moot.config.box_config import BoxConfig
from moot.config.configuration import McpServerConfig, McpSignInConfig, MemberConfig
from moot.config.secrets.env_file import read_env_file
from moot.errors import MootError
from moot.mcp.stdio_child import Command
from moot.mcp.upstream import HttpServer, Server, StdioServer, Upstream, UpstreamOptions
from moot.mcp.upstream.supervision import RESTARTED
from moot.net.websocket_client import should_reconnect
from moot.protocol.close_codes import REPLACED
from moot.resilience.restart_loop import keep_running
from moot.up.member_process import resolve_command
from moot.up.part_status import LAST_LINES, PartState, PartStatus
from moot.up.template_vars import TemplateVars

if TYPE_CHECKING:
    from moot.bridges.server.server_member import ServerMember
    from moot.oauth.oauth_settings import OAuthSettings

log = logging.getLogger(__name__)

# An installed server answers within a second or two; after this the status says what is waited for.
SILENCE_SECONDS: Final = 4.0


class BridgedServer:
    """One MCP server. `run` keeps it in the space until cancelled; `status` says how it is doing."""

    kind: Final = "server"
    gave_up: Final = False

    def __init__(
        self,
        config: MemberConfig,
        variables: TemplateVars,
        logs: Path,
        *,
        pins: Path,
        on_change: Callable[[], None],
    ) -> None:
        assert config.mcp_server is not None  # noqa: S101  # who has none is not bridged
        self.name = variables.name
        self.space = variables.space
        # The bridge owns its child.
        self.pid: int | None = None
        self._server_config: McpServerConfig = config.mcp_server
        self._variables = variables
        self._logs = logs
        self._pins = pins
        self._state = PartState(on_change)
        self._member: ServerMember | None = None
        # From its start on, before it has answered anything.
        self._upstream: Upstream | None = None
        self._last_output: list[str] = []

    def status(self) -> PartStatus:
        state, message, restarts = self._state.state, self._state.message, self._state.restarts
        output = self._last_output
        if state == "starting" and self._upstream is not None:
            message = self._starting_message(self._upstream)
        if self._member is not None and state == "running":
            upstream = self._member.upstream
            restarts += max(0, upstream.counts.starts - 1)
            sign_in = self._member.sign_in
            waits_for = None if sign_in is None else sign_in.credential.waits_for
            if waits_for is not None:
                state, message = "waiting", f"the server waits for {waits_for}"
            elif upstream.state == "down" and upstream.down_reason == RESTARTED:
                # Somebody wanted that, such as who approved an effect that was seen.
                state = "starting"
            elif upstream.state == "down":
                state, message = "waiting", f"the server {upstream.down_reason}; it is being restarted"
                output = upstream.stderr.last_lines(LAST_LINES)
            elif self._member.changes:
                message = f"changed tools are withheld: {', '.join(self._member.changes)}"
            else:
                message = next(reversed(upstream.stderr.last_lines(1)), "")
        return PartStatus(
            space=self.space,
            name=self.name,
            kind="server",
            state=state,
            since=self._state.since,
            restarts=restarts,
            message=message,
            output=tuple(output),
            log_file=self._logs if self._server_config.url is None else None,
        )

    async def run(self) -> None:
        """Run until cancelled, or until the space ends its membership for good."""
        _, reason = await keep_running(
            self._run_once,
            should_restart=lambda end: end[0],
            on_delay=lambda end, seconds: self._state.wait_for_restart(end[1], seconds),
        )
        self._state.change("ended", reason)

    async def _run_once(self) -> tuple[bool, str]:
        """One membership; whether to try again, and why it ended."""
        # Loading the SDK and the MCP side takes a moment that `moot up` without servers need not spend.
        from moot.bridges.server.bridge_runner import bridged
        from moot.bridges.server.bridge_settings import BridgeSettings
        from moot.bridges.server.call_secrets import CallSecrets
        from moot.bridges.server.standby import wait_for_turn

        self._state.start()
        variables = self._variables
        try:
            settings = BridgeSettings(
                server=resolve_server(self._server_config, variables, self._logs),
                box=resolve_box(self._server_config, variables),
                secrets=CallSecrets(self._server_config.secrets, variables.folder, variables.environ),
                gateway=variables.gateway,
                space=variables.space,
                token=variables.token.reveal(),
                config=self._server_config,
                pins_file=self._pins,
                oauth=await self._oauth(),
                upstream=UpstreamOptions(era=self._server_config.era),
            )
            async with bridged(settings, on_opened=self._on_opened) as member:
                self._member = member
                self._state.change("running")
                try:
                    ending = await member.space.stay()
                except asyncio.CancelledError:
                    self._state.change("stopping")
                    raise
        except MootError as fault:
            log.warning("not bridged", extra={"space": self.space, "participant": self.name})
            return True, str(fault)
        finally:
            self._last_output = [] if self._upstream is None else self._upstream.stderr.last_lines(LAST_LINES)
            self._member = self._upstream = None
        if ending.code == REPLACED:
            self._state.change("waiting", "a newer process has taken over: this one returns when it is gone")
            await wait_for_turn(settings)
            return True, "the process that had taken over is gone"
        return should_reconnect(ending.code), f"left the space: {ending.code} {ending.reason}".rstrip()

    def _on_opened(self, upstream: Upstream) -> None:
        self._upstream = upstream

    def _starting_message(self, upstream: Upstream) -> str:
        if asyncio.get_running_loop().time() - self._state.since < SILENCE_SECONDS:
            return self._state.message
        last = next(reversed(upstream.stderr.last_lines(1)), "")
        return "has not answered initialize yet" + (f": {last}" if last else "")

    async def _oauth(self) -> OAuthSettings | None:
        """How to sign in at a server that has no credential of its own in the file; raises UsageError."""
        from moot.config.secrets.sign_in_key import find_sign_in_key
        from moot.oauth.oauth_settings import OAuthSettings

        config = self._server_config
        has_own = any(name.lower() == "authorization" for name in config.headers)
        if config.url is None or (has_own and config.credentials == "server"):
            return None
        variables, _ = resolve_variables(config, self._variables)
        answer = config.oauth or McpSignInConfig()
        secret = answer.client_secret
        return OAuthSettings(
            sign_in=msgspec.structs.replace(
                answer,
                client_id=None if answer.client_id is None else variables.fill(answer.client_id),
                client_secret=None if secret is None else variables.fill(secret),
            ),
            folder=self._pins.parent / "sign-ins",
            # In a thread: somebody may have to unlock the keyring.
            key=await asyncio.to_thread(find_sign_in_key, variables.environ),
        )


def resolve_variables(
    config: McpServerConfig, variables: TemplateVars
) -> tuple[TemplateVars, dict[str, str]]:
    """The variables with those of the server's own file, which come apart too; raises UsageError."""
    if config.env_file is None:
        return variables, {}
    # Read at every start, so that a key can be changed without a restart of the space.
    file = variables.folder / variables.fill(config.env_file)
    further = read_env_file(file)
    return replace(variables, environ={**variables.environ, **further}, env_file=file), further


def resolve_box(config: McpServerConfig, variables: TemplateVars) -> Box | None:
    """What confines the server, with its placeholders replaced; raises UsageError."""
    if not isinstance(config.box, BoxConfig):
        return None
    variables, _ = resolve_variables(config, variables)
    filled = {
        name: tuple(variables.fill(each) for each in getattr(config.box, name))
        for name in ("read", "write", "network")
    }
    # Tokens, journals and the homes of other boxes.
    own = variables.folder.absolute() / ".moot"
    return Box(
        config=msgspec.structs.replace(config.box, **filled),
        folder=variables.folder.absolute(),
        hidden=(own,),
        home=own / "boxes" / variables.name,
    )


def resolve_server(config: McpServerConfig, variables: TemplateVars, logs: Path | None) -> Server:
    """The server with its placeholders replaced; raises UsageError."""
    variables, further = resolve_variables(config, variables)
    if config.url is not None:
        headers = {name: variables.fill(value) for name, value in config.headers.items()}
        return HttpServer(url=variables.fill(config.url), headers=headers, transport=config.transport)
    resolved = resolve_command(config, variables, further)
    command = Command(argv=resolved.argv, env=resolved.environment, cwd=str(resolved.cwd))
    return StdioServer(command=command, stderr_file=logs)
