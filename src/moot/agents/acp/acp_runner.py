"""Running an ACP agent as a member of a space."""

from __future__ import annotations

from collections.abc import Callable

from moot.agents.acp.acp_member import AcpMember
from moot.agents.acp.acp_settings import AcpSettings
from moot.agents.acp.folder_settings import check_folder_settings
from moot.participant import CloseReason
from moot.participant.programs.member_program import run_member


async def serve_acp(
    settings: AcpSettings, *, on_joined: Callable[[AcpMember, str], None] | None = None
) -> CloseReason:
    """Start an agent, join a space with it and stay until that ends.

    Raises UsageError, AgentUnusable or AgentStartFailed if the agent cannot be used, NotAdmitted or
    Unreachable if the space cannot be joined. The agent ends with this, whatever happens.
    """
    check_folder_settings(settings)
    return await run_member(lambda: AcpMember(settings), settings, on_joined=on_joined)
