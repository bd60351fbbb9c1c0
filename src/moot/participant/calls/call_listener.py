"""What is told of a call while it runs: progress and log messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from moot.participant.calls.outcome import Progress
from moot.participant.connection.message_feed import RunningHandler
from moot.protocol.operation import Json

PROGRESS: Final = "notifications/progress"
LOG_MESSAGE: Final = "notifications/message"


class CallListener(msgspec.Struct, eq=False):
    """The handlers for progress and log messages of one call."""

    token: Json
    progress: RunningHandler[Progress] | None
    log: RunningHandler[Mapping[str, Json]] | None

    def notify(self, method: str, params: Mapping[str, Json]) -> None:
        if method == LOG_MESSAGE:
            if self.log is not None:
                self.log.call(params)
            return
        done, total, message = params.get("progress"), params.get("total"), params.get("message")
        if self.progress is None or params.get("progressToken") != self.token or not _is_number(done):
            return
        text = message if isinstance(message, str) else None
        self.progress.call(Progress(float(done or 0), total if _is_number(total) else None, text, params))

    def end(self) -> None:
        for handler in (self.progress, self.log):
            if handler is not None:
                handler.end()


class FollowedProposal(Protocol):
    """What is needed of a proposal to follow the request that fulfils it."""

    @property
    def request_id(self) -> str | None: ...
    @property
    def asked(self) -> Sequence[str]: ...
    @property
    def watchers(self) -> list[Callable[[], None]]: ...


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
