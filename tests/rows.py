"""Many rows of one thing as one test: a test of its own for each costs more than what it checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from inspect import Parameter, signature
from typing import Any


def for_each_row(
    names: str | Sequence[str], rows: Iterable[Any], ids: Any = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As `pytest.mark.parametrize`, in one test. All rows are tried; it fails with those that did.

    For tests that need nothing new for each row: no folder, no monkeypatch.
    """
    words = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    is_bare = isinstance(names, str) and len(words) == 1
    listed = [(row,) if is_bare else tuple(row) for row in rows]
    assert listed, "no rows"
    assert all(len(row) == len(words) for row in listed), "a row is longer or shorter than its names"

    def name_of(number: int) -> str:
        row = listed[number]
        if ids is None:
            return f"row {number}: {row!r:.300}"
        return f"row {number}: " + (
            ", ".join(str(ids(value)) for value in row) if callable(ids) else str(list(ids)[number])
        )

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def try_all(**given: Any) -> None:
            faults: list[Exception] = []
            for number, row in enumerate(listed):
                try:
                    test(**given, **dict(zip(words, row, strict=True)))
                except Exception as fault:  # noqa: BLE001
                    fault.add_note(name_of(number))
                    faults.append(fault)
            if faults:
                raise ExceptionGroup(f"{len(faults)} of {len(listed)} rows failed", faults)

        left = [each for each in signature(test).parameters.values() if each.name not in words]
        assert all(each.kind is Parameter.POSITIONAL_OR_KEYWORD for each in left)
        try_all.__signature__ = signature(test).replace(parameters=left)  # type: ignore[attr-defined]
        return try_all

    return decorate
