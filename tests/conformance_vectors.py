"""The vectors of the package, a file at a time. Reading them takes a second: collecting tests reads none."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import resources

from moot.conformance.vectors import Vector, vectors_in

_FOLDER = resources.files("moot.conformance") / "vectors"
FILES = sorted(file.name for file in _FOLDER.iterdir() if file.name.endswith(".yaml"))


@cache
def all_vectors() -> list[tuple[str, Vector]]:
    return [(file, vector) for file in FILES for vector in vectors_in(file)]


def play_all(file: str, play: Callable[[int, Vector], None]) -> None:
    """Play each vector of a file, also after one that failed; raises with all that did."""
    vectors = vectors_in(file)
    faults: list[Exception] = []
    for number, vector in enumerate(vectors):
        try:
            play(number, vector)
        except Exception as fault:  # noqa: BLE001
            fault.add_note(f"vector {vector.name!r}")
            faults.append(fault)
    if faults:
        raise ExceptionGroup(f"{file}: {len(faults)} of {len(vectors)} vectors failed", faults)
    assert vectors, f"{file} holds no vector"
