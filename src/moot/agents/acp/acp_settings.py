"""Settings of an ACP agent in a space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from moot.box.boxed_child import Box
from moot.participant.programs.chat_intake import Answers
from moot.participant.programs.join_target import MemberSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpSettings(MemberSettings):
    """One ACP agent as one member of one space.

    `state_folder` keeps the session, what was not answered yet, and the home of the agent.
    """

    argv: tuple[str, ...]
    # The folder that it works in.
    folder: Path
    # Listed for the agent; may hold keys.
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    # Our own variables, of which the harmless ones and those that a known agent needs are passed on.
    inherited: Mapping[str, str] = field(default_factory=dict, repr=False)
    # Its own home; its own with the sign-in of the person who starts it; or that person's, with all settings.
    home: Literal["own", "signed_in", "kept"] = "own"
    # What confines it, besides its folder and its home, which it may change; None: nothing does.
    box: Box | None = None
    # Start although the folder holds settings of the agent that may allow things.
    trust_folder: bool = False
    # Whether the agent is asked at the start to do something for which it must ask.
    probe: bool = True
    # Join although the probe showed that it acts without asking.
    accept_unasked: bool = False
    answers: Answers = "named"
