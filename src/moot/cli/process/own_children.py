"""For commands that start processes: these learn nothing from us, and end with us."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from moot.cli.process import program


@contextmanager
def own_children() -> Iterator[None]:
    """Hide this process from its children, and end all of them with the block.

    Enter it before secrets are read and threads are started. Where a command is only a function call in a
    process of somebody else, it does nothing: the other children there are not ours to end.
    """
    if not program.owns_process:
        yield
        return
    from moot.resilience.descendants import contain_children
    from moot.resilience.process_secrets import hide_from_children

    hide_from_children()
    with contain_children():
        yield
