"""Settings of the agent in the folder that it works in: refused, left out or trusted, and told about.

At every start of the agent, and while it runs:

    trusted (--trust-folder)      they count; what is there and what changes is told to everybody
    left out                      the agent was told to use none of them, and the probe has seen that it does
                                  not; they are named as unused
    anything else                 it is not started, and is ended when they appear
"""

from __future__ import annotations

from moot.agents.acp.acp_settings import AcpSettings
from moot.agents.acp.agent_profiles import AgentProfile, profile_of
from moot.agents.acp.settings_files import find_settings, shorten_list
from moot.errors import UsageError


class FolderSettings:
    """The settings files of one agent's folder, as they were when it was last looked at."""

    def __init__(self, settings: AcpSettings, profile: AgentProfile) -> None:
        self._settings = settings
        self._profile = profile
        self._found: dict[str, tuple[int, int]] = {}
        # Whether the agent leaves them out. In the home of a person we write no files to make it do so.
        self.leaves_out = (
            profile.planted_file is not None
            and settings.probe
            and not settings.trust_folder
            and not (settings.home == "kept" and profile.untrusting_files)
        )

    @property
    def found(self) -> list[str]:
        return list(self._found)

    def check(self) -> None:
        """Look, before a start; raises UsageError if the agent must not be started with what is there.

        Also if the folder has tokens of a space: whoever reads one decides in the name of its owner.
        """
        folder = self._settings.folder
        if (folder / ".moot").exists():
            raise UsageError(
                f"{folder} has a folder .moot, with tokens of a space: the agent could read one and "
                "approve what it asks for. Let it work in another folder, with --cwd"
            )
        self._found = self._look()
        if self._found and not self._settings.trust_folder and not self.leaves_out:
            raise UsageError(
                "the folder has settings of the agent, which may allow things without asking: "
                f"{shorten_list(self._found)}. Read them; then remove them, or start with --trust-folder"
            )

    def take_changes(self) -> list[str]:
        """Look again: files that are new, changed or gone since the last look."""
        before, self._found = self._found, self._look()
        return sorted(path for path in {*before, *self._found} if before.get(path) != self._found.get(path))

    def _look(self) -> dict[str, tuple[int, int]]:
        # Where settings of a folder count, those of the home count as well if it is above the folder.
        home = None if self._settings.trust_folder else self._settings.inherited.get("HOME")
        return find_settings(self._profile, self._settings.folder, home)

    def statement(self) -> str:
        """What people have to know of them; empty if there are none."""
        if not self._found:
            return ""
        files = shorten_list(self._found)
        if self._settings.trust_folder:
            return f"Settings of the agent in my folder count, and may allow things without asking: {files}."
        return f"Settings of the agent in my folder are not used: {files}."


def check_folder_settings(settings: AcpSettings) -> None:
    """Raises UsageError if the folder has settings of the agent, which may allow what nobody here decides."""
    FolderSettings(settings, profile_of(settings.argv)).check()
