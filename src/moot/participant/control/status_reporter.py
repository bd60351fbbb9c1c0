"""The status of this member (MEW 3.9.4), on request and unasked."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from moot.errors import MootError, UsageError
from moot.participant.connection.envelope_sender import Addressees, EnvelopeSender
from moot.participant.connection.payload_shapes import PayloadShapeError, check_metrics
from moot.participant.control.controls import Control, Controls
from moot.protocol.operation import Json

log = logging.getLogger(__name__)


class StatusReporter:
    """Sends the metrics that `Controls.on_status` returns."""

    def __init__(self, sender: EnvelopeSender, controls: Controls) -> None:
        self._sender = sender
        self._controls = controls

    async def answer(
        self, control: Control, *, fields: list[str] | None = None, more: Mapping[str, Json] | None = None
    ) -> None:
        """Answer a control with a status; with `fields` only those metrics. `more` is added."""
        metrics = await self._metrics(control)
        if fields is not None:
            # D-27: the count is always there, everything else only if it was asked for.
            metrics = {
                name: value for name, value in metrics.items() if name in {"messages_in_context", *fields}
            }
        self.reply(control, "participant/status", metrics | dict(more or {}))

    async def report(self, to: Addressees = (), **metrics: Json) -> None:
        """Send a status without being asked; metrics are named in snake_case."""
        body = await self._metrics(None) | metrics
        try:
            check_metrics(body)
        except PayloadShapeError as fault:
            raise UsageError(str(fault)) from None
        self._sender.send("participant/status", body, to=to)

    async def report_if_allowed(self, **more: Json) -> None:
        """Send a status to everybody, if our rights allow it."""
        body = await self._metrics(None) | more
        if self._sender.may("participant/status", body):
            self._send_quietly("participant/status", body)

    def reply(self, control: Control, kind: str, payload: Mapping[str, Json]) -> None:
        """Answer a control; that needs no right (D-15). If nothing can be sent, it is only logged."""
        self._send_quietly(kind, payload, to=control.sender, about=control.envelope.id, check_rights=False)

    def _send_quietly(
        self,
        kind: str,
        payload: Mapping[str, Json],
        *,
        to: Addressees = (),
        about: Addressees = (),
        check_rights: bool = True,
    ) -> None:
        try:
            self._sender.send(kind, payload, to=to, about=about, check_rights=check_rights)
        except UsageError:
            raise
        except MootError as fault:
            log.info("not sent", extra={"kind": kind, "why": type(fault).__name__})

    async def _metrics(self, control: Control | None) -> dict[str, Json]:
        metrics: dict[str, Json] = {"messages_in_context": 0, **await self._controls.on_status(control)}
        check_metrics(metrics)
        return metrics
