"""A space for tests that read like a story: who sends what, and what comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moot.conformance.pure_driver import PureDriver
from moot.protocol.operation import Json
from tests.config.former_constants import without_constants

CALL = {"method": "tools/call", "params": {"name": "read_file", "arguments": {"path": "a.txt"}}}


class SpaceDriver(PureDriver):
    """A space from keyword settings. `says` answers with the refusal's code, None when it was accepted."""

    def __init__(self, **settings: Json) -> None:
        super().__init__({"dialects": ["mew", "mcpx", "m3p"], **without_constants(settings)})
        self.received: dict[str, list[Any]] = {}
        self._made = 0

    def enter(self, *names: str, **options: Json) -> None:
        """Let these members in with the same options; the test fails when one may not."""
        for name in names:
            assert self.comes(name, **options) is None

    def comes(self, session: str, **options: Json) -> str | None:
        self.received = self.join(session, options)
        return next((m["refused"] for m in self.received[session] if "refused" in m), None)

    def says(
        self,
        session: str,
        kind: str,
        payload: Json = None,
        *,
        to: Sequence[str] = (),
        about: Sequence[str] | str = (),
        id: str = "",
        **more: Json,
    ) -> str | None:
        """`about` is the correlation_id: a list in MEW, one string in the other dialects."""
        self._made += 1
        fields: dict[str, Json] = {"id": id or f"e{self._made}", "kind": kind, **more}
        if payload is not None:
            fields["payload"] = payload
        if to:
            fields["to"] = list(to)
        if about:
            fields["correlation_id"] = about
        self.received = self.send(session, fields)
        return self.refusal(session)

    def says_raw(self, session: str, text: str) -> str | None:
        self.received = self.raw(session, text)
        return self.refusal(session)

    def writes(self, session: str, stream: str, data: str = "data") -> str | None:
        self.received = self.frame(session, f"#{stream}#{data}")
        return self.refusal(session)

    def refusal(self, session: str) -> str | None:
        """The error that this session was last told, if any."""
        errors = [
            m for m in self.received.get(session, []) if m.get("kind") in ("system/error", "system.error")
        ]
        return errors[-1]["payload"]["error"] if errors else None

    def kinds(self, session: str) -> list[str]:
        """What the last step brought this session."""
        return [m.get("kind", "frame" if "frame" in m else "closed") for m in self.received.get(session, [])]

    def opens_stream(self, session: str, **payload: Json) -> str:
        assert self.says(session, "stream/request", {"direction": "upload", **payload}) is None
        opened = [m for m in self.received[session] if m["kind"] in ("stream/open", "stream.open")]
        return str(opened[0]["payload"]["stream_id"])

    def rights(self, name: str) -> list[Json]:
        member = self.space.state.roster.members[name]  # type: ignore[index]
        return [capability.original for capability in member.rights.capabilities]

    def flood(self, session: str, count: int) -> None:
        for _ in range(count):
            assert self.says(session, "chat", {"text": "noise"}) is None
