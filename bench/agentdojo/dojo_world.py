"""The four suites of AgentDojo as worlds, in the environment where it is installed (see `bench.origins`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bench.agentdojo.injected_text import PLACES, injected_text
from bench.agentdojo.world import Call, Scenario, as_json
from bench.origins import calls_of, suites, unwritten_attack

SUITES = ("workspace", "travel", "banking", "slack")


class DojoWorld:
    """One suite."""

    def __init__(self, suite: str) -> None:
        from agentdojo.functions_runtime import FunctionsRuntime

        self._suite: Any = suites()[suite]
        self._runtime = FunctionsRuntime(self._suite.tools)
        self._env: Any = None
        # The last worlds that were read from YAML, which takes a second.
        self._worlds: dict[str, Any] = {}
        self._plain = self._suite.load_and_inject_default_environment({})

    def tools(self) -> list[dict[str, Any]]:
        return [
            {"name": tool.name, "description": tool.description, "inputSchema": _schema(tool)}
            for tool in self._suite.tools
        ]

    def tasks(self) -> Iterator[Scenario]:
        for task in self._suite.user_tasks.values():
            env = task.init_environment(self._plain.model_copy(deep=True))
            yield Scenario(task.ID, task.PROMPT, _calls(task, env))

    def attacks(self, variant: str) -> Iterator[Scenario]:
        for attack in self._suite.injection_tasks.values():
            text = self._text(attack, variant)
            world = self._world("" if variant in PLACES else text)
            for task in self._suite.user_tasks.values():
                env = task.init_environment(world.model_copy(deep=True))
                calls = self._attack_calls(attack, env)
                if calls:
                    yield Scenario(task.ID, task.PROMPT, _calls(task, env), attack.ID, calls, text)

    def reset(self, task: str, text: str) -> None:
        self._env = self._suite.user_tasks[task].init_environment(self._world(text).model_copy(deep=True))

    def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[Any, str | None]:
        result, error = self._runtime.run_function(self._env, name, dict(arguments))
        return as_json(result), error

    def _world(self, text: str) -> Any:
        if not text:
            return self._plain
        if text not in self._worlds:
            if len(self._worlds) >= 4:
                del self._worlds[next(iter(self._worlds))]
            places = dict.fromkeys(self._suite.get_injection_vector_defaults(), text)
            self._worlds[text] = self._suite.load_and_inject_default_environment(places)
        return self._worlds[text]

    def _text(self, attack: Any, variant: str) -> str:
        # What it asks for, in a world without it: for the values that are to be written in another way.
        return injected_text(attack.GOAL, self._attack_calls(attack, self._plain), variant)

    def _attack_calls(self, attack: Any, env: Any) -> list[Call]:
        calls = _calls(attack, env)
        if not calls and self._suite.name == "workspace":
            calls = unwritten_attack(int(attack.ID.rpartition("_")[2]), env)
        return as_json_calls(calls)


def _calls(task: Any, env: Any) -> list[Call]:
    return as_json_calls(calls_of(task, env))


def as_json_calls(calls: list[Call]) -> list[Call]:
    return [(name, as_json(arguments)) for name, arguments in calls]


def _schema(tool: Any) -> dict[str, Any]:
    schema: dict[str, Any] = tool.parameters.model_json_schema()
    return schema
