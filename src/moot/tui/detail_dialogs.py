"""Dialogs that show one thing in full: a message, a member, reasoning, a stream, a rule."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from moot.errors import UsageError
from moot.participant import JoinedSpace
from moot.tui.detail_view import envelope_lines, member_lines
from moot.tui.dialogs import DetailDialog
from moot.tui.operations.content_operation import CONTENT, find_hash
from moot.tui.operations.operation import ClientContext, OperationResult
from moot.tui.panes import StreamPane, reasoning_lines
from moot.tui.refusal_text import explain_refusal, is_refusal
from moot.tui.row_layout import line
from moot.tui.rules_pane import rule_details
from moot.tui.timeline import Timeline
from moot.tui.trust_log import TrustLog


class DetailDialogs:
    """Finds what a key or a name means, and opens the dialog for it."""

    def __init__(
        self,
        space: JoinedSpace,
        *,
        timeline: Timeline,
        streams: StreamPane,
        trust: TrustLog,
        show: Callable[[DetailDialog], object],
    ) -> None:
        self._space = space
        self._timeline = timeline
        self._streams = streams
        self._trust = trust
        self._show = show

    # Of a selected row: nothing happens if it is gone

    def show_envelope(self, id: str) -> None:
        envelope = self._timeline.find(id)
        if envelope is not None:
            title = f"{envelope.kind} from {envelope.sender}"
            self._show(DetailDialog(title, lambda: envelope_lines(envelope)))

    def show_member(self, id: str) -> None:
        self._show(DetailDialog(id, lambda: member_lines(self._space, id)))

    def show_reasoning(self, id: str) -> None:
        sequence = self._space.contexts.get(id)
        if sequence is not None:
            title = f"Reasoning of {sequence.owner}: {sequence.message}"
            self._show(DetailDialog(title, lambda: reasoning_lines(sequence), follows=True))

    def show_rule(self, name: str) -> None:
        found = rule_details(self._trust, name)
        if found is not None:
            title, lines = found
            self._show(DetailDialog(title, lambda: lines))

    # Of a name that was typed: raises UsageError if there is none

    def show_named_envelope(self, named: str) -> None:
        envelope = self._timeline.find(named)
        if envelope is None:
            raise UsageError(f"no recent message {named}: type more of its id")
        self.show_envelope(envelope.id)

    async def show_content(self, context: ClientContext, args: argparse.Namespace) -> OperationResult:
        """A large value: a text in a dialog, everything else in a file."""
        args.sha256 = find_hash(args.sha256, self._timeline.envelopes())
        result = await CONTENT.run(context, args)
        if args.file is not None:
            return result
        text = list(result.lines)
        self._show(DetailDialog(f"sha256 {args.sha256}", lambda: [line(each) for each in text]))
        return OperationResult(None)

    def show_stream(self, named: str) -> None:
        info = self._streams.find(named)
        if info is None:
            raise UsageError(f"unknown stream {named}: /streams lists them")
        title = f"stream {info.id} of {info.owner}"
        self._show(DetailDialog(title, lambda: self._streams.tail(info.id), follows=True))

    def explain_refusal(self, named: str | None) -> Sequence[str]:
        """Why the latest message was refused, or the one that is named."""
        found = [each for each in self._timeline.envelopes() if is_refusal(each)]
        if named is not None:
            found = [
                each for each in found if any(id.startswith(named) for id in (each.id, *each.correlation_id))
            ]
        if not found:
            return ["no message was refused" if named is None else f"no recent refusal of {named}"]
        about = next((self._timeline.find(id) for id in found[-1].correlation_id), None)
        return explain_refusal(found[-1], about)
