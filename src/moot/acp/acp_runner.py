"""Running an ACP agent as a member of a space."""

from __future__ import annotations

from collections.abc import Callable

from moot.acp.acp_member import AcpMember
from moot.acp.acp_settings import AcpSettings
from moot.acp.agent_profiles import profile_of, project_settings
from moot.errors import UsageError
from moot.participant import CloseReason
from moot.participant.member_program import run_member


def check_folder_settings(settings: AcpSettings) -> None:
    """Raises UsageError if the folder has settings of the agent, which may allow what nobody here decides.

    Also if it has tokens of a space: whoever reads one decides in the name of its owner.
    """
    if (settings.folder / ".moot").exists():
        raise UsageError(
            f"{settings.folder} has a folder .moot, with tokens of a space: the agent could read one and "
            "approve what it asks for. Let it work in another folder, with --cwd"
        )
    found = [] if settings.trust_folder else project_settings(profile_of(settings.argv), settings.folder)
    if found:
        raise UsageError(
            f"the folder has settings of the agent, which may allow things without asking: "
            f"{', '.join(found[:5])}. Read them; then remove them, or start with --trust-folder"
        )


async def serve_acp(
    settings: AcpSettings, *, on_joined: Callable[[AcpMember, str], None] | None = None
) -> CloseReason:
    """Start an agent, join a space with it and stay until that ends.

    Raises UsageError, AgentUnusable or AgentStartFailed if the agent cannot be used, NotAdmitted or
    Unreachable if the space cannot be joined. The agent ends with this, whatever happens.
    """
    check_folder_settings(settings)
    return await run_member(lambda: AcpMember(settings), settings, on_joined=on_joined)
