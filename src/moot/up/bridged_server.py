"""An MCP server of a space, bridged in this process: it joins, it is kept running, its stderr is kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moot.config.configuration import McpServerConfig, MemberConfig
from moot.errors import MootError
from moot.mcp.stdio_child import Command
from moot.mcp.upstream import HttpServer, Server, StdioServer, Upstream
from moot.net.websocket_client import should_reconnect
from moot.resilience.restart_loop import DEFAULT_RESTART, RestartPolicy, keep_running
from moot.up.member_command import argument_list, member_environment
from moot.up.part_status import PartStatus, State
from moot.up.template_vars import TemplateVars

if TYPE_CHECKING:
    from moot.bridge.server_member import ServerMember

log = logging.getLogger(__name__)

# A server that is installed answers within a second or two; one that says nothing for longer is told of.
SILENCE_SECONDS: Final = 4.0


class BridgedServer:
    """One MCP server. `run` keeps it in the space until cancelled; `standing` tells how it does."""

    kind: Final = "server"

    def __init__(
        self,
        config: MemberConfig,
        words: TemplateVars,
        logs: Path,
        *,
        pins: Path,
        on_change: Callable[[], None],
        restart: RestartPolicy = DEFAULT_RESTART,
    ) -> None:
        assert config.mcp_server is not None  # noqa: S101  # who has none is not bridged
        self.config = config
        self.name = words.name
        self.space = words.space
        self._starts = 0
        # A bridge keeps its child to itself.
        self.pid: int | None = None
        self._server_config: McpServerConfig = config.mcp_server
        self._words = words
        self._logs = logs
        self._pins = pins
        self._on_change = on_change
        self._restart = restart
        self._member: ServerMember | None = None
        # From its start on, before it has answered anything.
        self._upstream: Upstream | None = None
        self._state: State = "starting"
        self._since = asyncio.get_running_loop().time()
        self._said = ""

    def standing(self) -> PartStatus:
        state, words, restarts = self._state, self._said, max(0, self._starts - 1)
        if state == "starting" and self._upstream is not None:
            words = self._silence(self._upstream)
        if self._member is not None and state == "running":
            upstream = self._member.upstream
            restarts += max(0, upstream.counts.starts - 1)
            if upstream.state == "down":
                state, words = "waiting", f"the server {upstream.down_reason}; it is started again"
            elif self._member.changes:
                changed = ", ".join(self._member.changes)
                words = f"tools that changed are withheld: {changed}"
            else:
                words = next(reversed(upstream.stderr.last_lines(1)), "")
        return PartStatus(
            space=self.space,
            name=self.name,
            kind="server",
            state=state,
            since=self._since,
            restarts=restarts,
            words=words,
        )

    async def run(self) -> None:
        """Until cancelled, or until the space ends its membership for good."""
        _, why = await keep_running(
            self._live,
            self._restart,
            should_restart=lambda end: end[0],
            on_delay=lambda end, seconds: self._moved("waiting", f"{end[1]}; again in {seconds:.1f} s"),
        )
        self._moved("ended", why)

    async def _live(self) -> tuple[bool, str]:
        """One membership; whether to try again, and why it ended."""
        # Loading the SDK and the MCP side takes a moment that `moot up` without servers need not spend.
        from moot.bridge.bridge_runner import bridged
        from moot.bridge.bridge_settings import BridgeSettings

        self._starts += 1
        self._moved("starting", "")
        words = self._words
        try:
            settings = BridgeSettings(
                server=self._server(),
                gateway=words.gateway,
                space=words.space,
                token=words.token.reveal(),
                pin=self._server_config.pin,
                pins_file=self._pins,
            )
            async with bridged(settings, on_opened=self._opened) as member:
                self._member = member
                self._moved("running", "")
                try:
                    ending = await member.space.stay()
                except asyncio.CancelledError:
                    self._moved("stopping", "")
                    raise
        except MootError as fault:
            log.warning("not bridged", extra={"space": self.space, "participant": self.name})
            return True, str(fault)
        finally:
            self._member = self._upstream = None
        return should_reconnect(ending.code), f"left the space: {ending.code} {ending.reason}".rstrip()

    def _opened(self, upstream: Upstream) -> None:
        self._upstream = upstream

    def _silence(self, upstream: Upstream) -> str:
        if asyncio.get_running_loop().time() - self._since < SILENCE_SECONDS:
            return self._said
        last = next(reversed(upstream.stderr.last_lines(1)), "")
        return "has not answered initialize yet" + (f": {last}" if last else "")

    def _server(self) -> Server:
        """The server with its placeholders replaced; raises UsageError."""
        words, config = self._words, self._server_config
        if config.url is not None:
            headers = {name: words.filled(value) for name, value in config.headers.items()}
            return HttpServer(url=words.filled(config.url), headers=headers, transport=config.transport)
        assert config.command is not None  # noqa: S101  # one of the two is there
        listed, _ = words.variables(config.env)
        environment = member_environment(listed, words.environ)
        cwd = words.folder / (words.filled(config.cwd) if config.cwd is not None else "")
        args = tuple(words.filled(arg) for arg in config.args)
        argv = argument_list(words.filled(config.command), args, environment, cwd)
        command = Command(argv=tuple(argv), env=environment, cwd=str(cwd))
        return StdioServer(command=command, stderr_file=self._logs)

    def _moved(self, state: State, words: str) -> None:
        self._state, self._said = state, words
        self._since = asyncio.get_running_loop().time()
        self._on_change()
