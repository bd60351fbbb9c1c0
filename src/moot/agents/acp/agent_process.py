"""An ACP agent as a child process: started, initialised, signed in, with sessions in the mode that asks.

Client file access and terminals are not offered: agents fall back to their own, so they are no gate. The
permission request is the only one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from moot import __version__
from moot.agents.acp.acp_settings import AcpSettings
from moot.agents.acp.agent_profiles import AgentProfile
from moot.agents.acp.json_rpc import AUTH_REQUIRED, IncomingCall, JsonRpcPeer, PeerError, PeerGone
from moot.box.box_plan import HOME as BOX_HOME
from moot.box.boxed_child import Box
from moot.errors import MootError, UsageError
from moot.mcp import stdio_child
from moot.mcp.stderr_tail import StderrTail
from moot.private_files import use_folder
from moot.protocol.operation import Json
from moot.protocol.strict_json import texts_in

# The first answer of an agent; one that npx fetches first takes longer than one that is installed.
START_SECONDS: Final = 120.0
# Answers to everything but prompts.
ANSWER_SECONDS: Final = 60.0

log = logging.getLogger(__name__)

PROTOCOL_VERSION: Final = 1
_STDERR_LINES: Final = 5
# A pipe breaks a moment before it is known how its process ended.
_END_SECONDS: Final = 10.0
# Agents run `git status` and the like unasked, and a repository can name a program that these then run.
_HARMLESS_GIT: Final = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.fsmonitor",
    "GIT_CONFIG_VALUE_0": "false",
    "GIT_PAGER": "cat",
}
# Tokens are longer than the names and dates beside them.
_SECRET_CHARS: Final = 24
_PACKAGE_RUNNERS: Final = frozenset({"npx", "npm", "pnpm", "bunx"})


class AgentUnusable(MootError):
    """The agent starts and cannot be used: another version, no sign-in, no mode that asks."""


class AgentStartFailed(MootError):
    """The agent ended before it could be used; `stderr_lines` is the end of its stderr, as it was written."""

    def __init__(self, message: str, stderr_lines: list[str]) -> None:
        super().__init__(message)
        self.stderr_lines = stderr_lines


class AgentProcess:
    """A running agent. `child.ended` tells its end."""

    def __init__(
        self,
        settings: AcpSettings,
        profile: AgentProfile,
        on_request: Callable[[IncomingCall], None],
        on_notification: Callable[[str, Mapping[str, Any]], None],
    ) -> None:
        self.settings = settings
        self.profile = profile
        self.peer = JsonRpcPeer(self._write, on_request, on_notification)
        self.stderr = StderrTail(settings.state_folder / "stderr.log")
        self.capabilities: Mapping[str, Any] = {}
        # What it calls itself, with its version.
        self.title = profile.name
        self.child: stdio_child.StdioChild | None = None
        # Set when it has ended or shall be stopped, and why.
        self.gone = asyncio.Event()
        self.end_reason = ""
        self._environment: dict[str, str] = {}
        # Files with the sign-in of whoever starts it.
        self._sign_in_files: list[Path] = []

    def _write(self, line: bytes) -> None:
        if self.child is None:
            raise PeerGone("it is not started")
        if self.child.is_closed and not self.gone.is_set():
            # Whoever waits for an answer is told how it ended, which says more.
            why = "the agent reads nothing any more"
            asyncio.get_running_loop().call_later(_END_SECONDS, self.abandon, why)
            return
        try:
            self.child.send(line)
        except stdio_child.ChildGone as fault:
            raise PeerGone(str(fault)) from None

    async def start(self) -> None:
        settings, profile = self.settings, self.profile
        inherited = {
            name: settings.inherited[name] for name in profile.variables if name in settings.inherited
        }
        own: dict[str, str] = {}
        if settings.home != "kept":
            home = settings.state_folder / "home"
            prepare_home(home, profile, trust_folder=settings.trust_folder)
            own = home_environment(home, profile, settings.argv, settings.inherited)
            if settings.home == "signed_in":
                self._sign_in_files = link_sign_in(home, profile, settings.inherited)
        else:
            own = {name: text for name, text in profile.environment.items() if "{home}" not in text}
        if not settings.trust_folder:
            own |= profile.untrusting_environment
        self._environment = {**inherited, **own, **settings.env}
        command = stdio_child.Command(argv=settings.argv, env=self._environment, cwd=str(settings.folder))
        if settings.box is not None:
            command = boxed_agent(command, settings.box, settings, self._sign_in_files)
        self.child = await stdio_child.start(
            command,
            on_line=self.peer.feed,
            on_oversize=self._on_oversize,
            stderr=self.stderr,
            inherited=settings.inherited,
        )
        self.child.ended.add_done_callback(lambda ended: self.abandon(f"the agent {ended.result()}"))

    def _on_oversize(self, _head: bytes, _tail: bytes, size: int) -> None:
        """What was in it is not known, so nothing that follows is understood either."""
        log.warning("a line of the agent is too long", extra={"bytes": size})
        self.abandon(f"the agent wrote a line of {size} bytes")

    def abandon(self, why: str) -> None:
        """Use it no longer: it has ended, or shall be."""
        self.end_reason = self.end_reason or why
        self.peer.end(why)
        self.gone.set()

    async def initialize(self) -> None:
        """Shake hands and sign in; raises AgentUnusable, PeerGone."""
        try:
            answer = await self.peer.request(
                "initialize",
                {
                    "protocolVersion": PROTOCOL_VERSION,
                    "clientCapabilities": {
                        "fs": {"readTextFile": False, "writeTextFile": False},
                        "terminal": False,
                    },
                    "clientInfo": {"name": "moot", "title": "Moot", "version": __version__},
                },
                START_SECONDS,
            )
        except PeerError as fault:
            raise AgentUnusable(
                f"the program answered `initialize` with an error: {fault.message}; is it an ACP agent?"
            ) from None
        version = answer.get("protocolVersion")
        if version != PROTOCOL_VERSION:
            raise AgentUnusable(
                f"the agent speaks version {version} of ACP, and this is version {PROTOCOL_VERSION}"
            )
        given = answer.get("agentCapabilities")
        self.capabilities = given if isinstance(given, dict) else {}
        about = answer.get("agentInfo")
        if isinstance(about, dict):
            words = (about.get("title") or about.get("name"), about.get("version"))
            self.title = " ".join(word for word in words if isinstance(word, str)) or self.title
        for variable, method in self.profile.sign_in.items():
            if self._environment.get(variable):
                await self._sign_in(method)
        if self._sign_in_files and self.profile.sign_in_by_file is not None:
            await self._sign_in(self.profile.sign_in_by_file)

    async def _sign_in(self, method: str) -> None:
        try:
            await self.peer.request("authenticate", {"methodId": method}, ANSWER_SECONDS)
        except PeerError as fault:
            raise AgentUnusable(f"the agent did not sign in ({method}): {fault.message}") from None

    # Sessions

    @property
    def can_load(self) -> bool:
        return self.capabilities.get("loadSession") is True

    @property
    def can_resume(self) -> bool:
        given = self.capabilities.get("sessionCapabilities")
        return isinstance(given, dict) and isinstance(given.get("resume"), dict)

    async def new_session(self, folder: Path) -> str:
        """A new session in the mode that asks; raises AgentUnusable, PeerGone."""
        answer = await self._open("session/new", self._session_params(folder))
        session = answer.get("sessionId")
        if not isinstance(session, str) or not session:
            raise AgentUnusable("the agent opened a session without an id")
        await self._set_mode(session, answer)
        return session

    async def restore_session(self, session: str, folder: Path) -> bool:
        """Open an earlier session; False if the agent cannot, or does not know it."""
        method = "session/resume" if self.can_resume else "session/load"
        if not (self.can_resume or self.can_load):
            return False
        try:
            answer = await self._open(method, {"sessionId": session, **self._session_params(folder)})
        except AgentUnusable as fault:
            log.info("the session cannot be restored", extra={"why": str(fault)})
            return False
        await self._set_mode(session, answer)
        return True

    def _session_params(self, folder: Path) -> dict[str, Json]:
        params: dict[str, Json] = {"cwd": str(folder), "mcpServers": []}
        if self.profile.untrusting_session and not self.settings.trust_folder:
            params["_meta"] = dict(self.profile.untrusting_session)
        return params

    async def _open(self, method: str, params: Mapping[str, Json]) -> dict[str, Any]:
        try:
            return await self.peer.request(method, params, START_SECONDS)
        except PeerError as fault:
            self.check_signed_in(fault)
            raise AgentUnusable(f"the agent refused {method}: {fault.message}") from None

    def check_signed_in(self, fault: PeerError) -> None:
        """Raises AgentUnusable, with what to do, if the agent refused something because it has no key."""
        if fault.code == AUTH_REQUIRED:
            names = ", ".join(self.profile.variables) or "the variable with its key"
            raise AgentUnusable(
                f"the agent wants to sign in ({fault.message}). It has a home of its own: give it a key "
                f"({names}) in your environment or with --env, or use the sign-in of your home with --sign-in"
            ) from None

    async def _set_mode(self, session: str, answer: Mapping[str, Any]) -> None:
        """Set the mode that asks, and see that it is set: the one place where that is decided."""
        wanted = self.profile.mode
        if wanted is None:
            return
        current = mode_in(answer)
        if current == wanted:
            return
        try:
            await self.set_mode(session)
        except (PeerError, PeerGone) as fault:
            raise AgentUnusable(
                f"the agent is in the mode {current!r} and refuses {wanted!r}, in which it asks: {fault}"
            ) from None

    async def set_mode(self, session: str) -> None:
        await self.peer.request(
            "session/set_mode",
            {"sessionId": session, "modeId": self.profile.mode},
            ANSWER_SECONDS,
        )

    def secrets(self) -> list[str]:
        """Values of variables that the agent has and nobody else shall read."""
        listed = {*self.profile.variables, *self.settings.env}
        of_environment = [
            value
            for name, value in self._environment.items()
            if name in listed and any(word in name.upper() for word in ("KEY", "TOKEN", "SECRET", "PASSW"))
        ]
        return [*of_environment, *(text for file in self._sign_in_files for text in secrets_in(file))]

    def last_words(self) -> str:
        """The end of its stderr, for the log and the terminal of whoever runs it."""
        return "".join(f"\n  | {line}" for line in self.stderr.last_lines(_STDERR_LINES))

    async def stop(self) -> None:
        """End it and everything that it started."""
        self.abandon("the agent was stopped")
        if self.child is not None:
            with suppress(stdio_child.ChildGone):
                await self.child.stop()


def mode_in(answer: Mapping[str, Any]) -> str | None:
    """The current mode in an answer to session/new; None if it tells none."""
    modes = answer.get("modes")
    current = modes.get("currentModeId") if isinstance(modes, dict) else None
    return current if isinstance(current, str) else None


# The home of an agent: its own, for our user alone, and empty at every start but for its sessions.
#
# What an agent keeps there gives it permissions later: rules, settings, trusted folders. So nothing of that
# outlives a start, and nothing of the home of the person who starts it gets in but, with `--sign-in`, the
# files with their sign-in.


def prepare_home(home: Path, profile: AgentProfile, *, trust_folder: bool = False) -> None:
    """Make the home, or remove from it all but sessions; raises UsageError if that is not possible.

    Without `trust_folder` the agent is told to leave the settings of its folder out.
    """
    use_folder(home.parent, what="the state folder", option="--state DIR")
    kept = [Path(path) for path in profile.kept]
    try:
        if home.is_symlink():
            home.unlink()
        _remove_all_but(home, Path(), kept)
    except OSError as fault:
        raise UsageError(f"the home of the agent, {home}, cannot be emptied: {fault.strerror}") from None
    use_folder(home, what="the home of the agent", option="--state DIR")
    for value in profile.environment.values():
        if value.startswith("{home}/"):
            # Codex does not start if its folder is not there.
            (home / value.removeprefix("{home}/")).mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in () if trust_folder else profile.untrusting_files.items():
        file = home / name
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_text(text)


def boxed_agent(
    command: stdio_child.Command, box: Box, settings: AcpSettings, sign_in_files: Sequence[Path]
) -> stdio_child.Command:
    """The command in its box: it may change the folder that it works in, its home, and its sign-in."""
    home = settings.state_folder / "home"
    write = [*box.config.write, str(settings.folder), *(str(each.resolve()) for each in sign_in_files)]
    box = replace(box, config=msgspec.structs.replace(box.config, write=tuple(write)), home=home)
    # There its home has the name that all homes have in boxes.
    env = {name: value.replace(str(home), str(BOX_HOME)) for name, value in command.env.items()}
    # The packages that you fetched are yours: what it fetches, it keeps in its home.
    env.pop("npm_config_cache", None)
    return replace(command, env=env, start=box.start)


def link_sign_in(home: Path, profile: AgentProfile, inherited: Mapping[str, str]) -> list[Path]:
    """Let the agent use the sign-in of whoever starts it, and nothing else of that home; returns the files.

    Links, because an agent that renews a sign-in makes older copies of it void. Raises UsageError if there is
    none.
    """
    found = []
    for name in profile.sign_in_files:
        file = _in_home_of(inherited, profile, name)
        if file is not None and file.is_file():
            link = home / name
            link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(file.resolve())
            found.append(file)
    if not found:
        looked = ", ".join(f"~/{name}" for name in profile.sign_in_files) or "none is known for it"
        raise UsageError(
            f"--sign-in: there is no sign-in of {profile.name} in your home ({looked})"
            + (f": {profile.sign_in_help}" if profile.sign_in_help else "")
        )
    return found


def _in_home_of(inherited: Mapping[str, str], profile: AgentProfile, name: str) -> Path | None:
    """A file of a person's home, or of the folder that their own variable names in place of it."""
    for variable, value in profile.environment.items():
        top = value.removeprefix("{home}/")
        if top != value and name.startswith(f"{top}/") and inherited.get(variable):
            return Path(inherited[variable]) / name.removeprefix(f"{top}/")
    return Path(inherited["HOME"]) / name if inherited.get("HOME") else None


def secrets_in(file: Path) -> list[str]:
    """The longer texts of a file with a sign-in; none if it is no JSON."""
    try:
        value = json.loads(file.read_text())
    except (OSError, ValueError):
        return []
    return [text for text in texts_in(value) if len(text) >= _SECRET_CHARS]


def _remove_all_but(home: Path, inner: Path, kept: list[Path]) -> None:
    folder = home / inner
    if not folder.is_dir():
        return
    for entry in os.scandir(folder):
        path = inner / entry.name
        # Through no link: it may lead anywhere.
        if entry.is_dir(follow_symlinks=False):
            if path in kept:
                continue
            if any(path in each.parents for each in kept):
                _remove_all_but(home, path, kept)
            else:
                shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def home_environment(
    home: Path, profile: AgentProfile, argv: tuple[str, ...], inherited: Mapping[str, str]
) -> dict[str, str]:
    """The variables that lead an agent to its own home."""
    environment = {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local" / "share"),
        "XDG_STATE_HOME": str(home / ".local" / "state"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        **_HARMLESS_GIT,
        **{name: value.replace("{home}", str(home)) for name, value in profile.environment.items()},
    }
    real = inherited.get("HOME")
    if real and Path(argv[0]).name in _PACKAGE_RUNNERS:
        # Packages are not fetched anew at every start.
        environment["npm_config_cache"] = inherited.get("npm_config_cache", str(Path(real) / ".npm"))
    return environment
