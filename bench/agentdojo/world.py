"""What a benchmark's world is to us: tools with a state, tasks with their right calls, and attacks.

This runs in the environment of the benchmark, not in ours, so it needs nothing but Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

Call = tuple[str, dict[str, Any]]
# Every injected text begins so, in whatever way it goes on: the agent knows it by that.
MARKER = "<INFORMATION>"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A task of a person, with its right calls; with an attack, the calls that its instruction asks for."""

    task: str
    prompt: str
    calls: list[Call]
    attack: str | None = None
    attack_calls: list[Call] = field(default_factory=list)
    text: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class World(Protocol):
    """One world. `variant` is the way in which an instruction is written (`injected_text`)."""

    def tools(self) -> list[dict[str, Any]]:
        """The definitions of its tools, as MCP lists them."""

    def tasks(self) -> Iterator[Scenario]: ...

    def attacks(self, variant: str) -> Iterator[Scenario]:
        """Each task with each instruction that has an effect."""

    def reset(self, task: str, text: str) -> None:
        """Begin anew, with this text wherever others can write."""

    def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[Any, str | None]:
        """What a tool returns, or its error."""


def as_json(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    if isinstance(value, dict):
        return {str(name): as_json(each) for name, each in value.items()}
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value
