"""Replacing tokens of participants while the gateway runs, with the files that hold generated ones.

A generated token stands in a file of the data folder, from which `moot up` and a person's own commands take
it. When the token is replaced, the file gets the new one first: if the machine stops in between, the next
start finds another token than before in the configuration and gives that to the participant.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from moot.config.configuration import Configuration
from moot.config.secrets.secret import Secret
from moot.config.secrets.token_source import replace_token_file
from moot.gateway.hosting.mint import FreshMint
from moot.gateway.hosting.space_host import SpaceHost
from moot.protocol.operation import Json

log = logging.getLogger(__name__)


class TokenRotation:
    """Gives participants other tokens, one at a time, so that the file holds the one that was given last."""

    def __init__(self, configuration: Configuration) -> None:
        self._one_at_a_time = asyncio.Lock()
        # Told of every token that replaces the others of a participant: space, participant, token.
        self.on_replaced: Callable[[str, str, Secret], None] = lambda _space, _name, _token: None
        self.configure(configuration)

    def configure(self, configuration: Configuration) -> None:
        """Take over where generated tokens stand."""
        self._files: dict[tuple[str, str], Path] = {
            (space, name): file
            for space, settings in configuration.spaces.items()
            for name, file in settings.token_files.items()
        }

    async def rotate(self, host: SpaceHost, who: str, by: str, *, keep: bool) -> dict[str, Json]:
        """A new token; with `keep` the earlier ones stay valid. Raises Refused."""
        answer: dict[str, Json] = {"participant_id": who}
        async with self._one_at_a_time:
            host.order.check_available()
            name = host.space.state.roster.find(who).name
            token = FreshMint().token()
            secret = token.secret or ""
            if not keep:
                answer |= await self._replace_file(host.name, name, secret)
            await host.rights.rotate_credential(name, token, by, keep=keep)
        if not keep:
            self.on_replaced(host.name, name, Secret(secret))
        return answer | {"token": secret}

    async def restore(self, host: SpaceHost, who: str, by: str) -> dict[str, Json]:
        """Undo a removal. The old token stays void; the answer has a new one."""
        async with self._one_at_a_time:
            (result,) = (await host.rights.restore_member(who, by)).results
            secret = str(result.fields["token"])
            noted = await self._replace_file(host.name, who, secret)
        self.on_replaced(host.name, who, Secret(secret))
        return dict(result.fields) | noted

    async def _replace_file(self, space: str, name: str, secret: str) -> dict[str, Json]:
        """Put the token into its file, if it has one; what the answer says if that cannot be done."""
        file = self._files.get((space, name))
        if file is None:
            return {}
        why: str | None = None
        try:
            if not await asyncio.to_thread(replace_token_file, file, secret):
                why = "it could not be written, and was removed"
        except OSError as fault:
            # The old token is void all the same; what is in the file will not be announced.
            why = fault.strerror
        if why is None:
            return {}
        log.warning("token file not replaced", extra={"file": str(file), "why": why})
        # A start makes another token where there is none in the file.
        return {"message": "valid until the gateway starts again: its file could not be written"}
