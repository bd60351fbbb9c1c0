"""What a tool does, as far as origins need it: whose words it returns, what it reads, and whom it reaches.

An operator says it in these words. MCP's annotations say some of it, and count once a person has accepted
them, for this definition of the tool. Whatever nobody said is taken at its worst: others write what it
returns, it reads private things, it has an effect, and it reaches the outside.

    tools:
      mail/read_email: {returns: others, private: true, effect: reads, outside: false}
      crm/*: {returns: trusted, effect: reads, outside: false}
      shell/run: {ignore: [description]}

`undo` is reversible, compensable or final; where nobody said it, a tool that only reads is reversible and
every other one final. `ignore` names arguments that people said do not matter: rules compare them no
longer, but hold them to plain words (`moot.trust.rules.ignored_arguments`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, get_args

from moot.errors import UsageError
from moot.protocol.gateway_proposal import Undo
from moot.protocol.operation import Json
from moot.protocol.patterns.globs import glob

# others: results contain what others write. records: the same in records that the tool itself keeps and gives
# ids to, as a calendar does. trusted: a look-up that this organisation keeps itself.
Returns = Literal["others", "records", "trusted"]
# destroys: what it does cannot be undone, so people decide whatever its values are.
Effect = Literal["reads", "writes", "destroys"]
# From the mildest on.
UNDO_CLASSES: Final[tuple[Undo, ...]] = get_args(Undo)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTraits:
    """`returns` and `private` are about results, all others about calls."""

    returns: Returns = "others"
    private: bool = True
    effect: Effect = "writes"
    outside: bool = True
    # None: nobody said whether it can be undone.
    undo: Undo | None = None
    # Arguments that do not matter to whoever decides.
    ignore: tuple[str, ...] = ()

    @property
    def undo_class(self) -> Undo:
        """What rules go by: what only reads needs no undoing, and of all else the worst is assumed."""
        return self.undo or ("reversible" if self.effect == "reads" else "final")


UNKNOWN_TOOL: Final = ToolTraits()
MAX_LABELLED_BLOCKS: Final = 256
# Arguments of one tool that do not matter, and the length of a name.
MAX_IGNORED: Final = 16
MAX_ARGUMENT_CHARS: Final = 100
_UNTRUSTED_HINTS: Final = frozenset({"openWorldHint", "untrustedContentHint", "maliciousActivityHint"})
_PRIVATE_HINTS: Final = frozenset({"privateHint", "sensitiveHint", "secretHint"})
_OPTIONS: Final[Mapping[str, tuple[Json, ...]]] = {
    "returns": ("others", "records", "trusted"),
    "private": (True, False),
    "effect": ("reads", "writes", "destroys"),
    "outside": (True, False),
    "undo": UNDO_CLASSES,
}


class ToolEntry(NamedTuple):
    """One line of `tools:`. With a `definition` it holds only while the tool is defined so."""

    pattern: str
    traits: ToolTraits
    definition: str | None = None


def traits_from_json(value: Json, *, where: str = "a tool") -> ToolTraits:
    """The traits that `tools:` or `trust/accept` says; what it leaves out is taken at its worst."""
    if not isinstance(value, dict):
        raise UsageError(f"{where}: expected what the tool does, as in {{returns: others, effect: reads}}")
    ignored = _ignored(value.get("ignore", []), where)
    value = {name: option for name, option in value.items() if name != "ignore"}
    for name, option in value.items():
        if name not in _OPTIONS:
            raise UsageError(f"{where}: there is no {name!r}; use {', '.join((*_OPTIONS, 'ignore'))}")
        # By identity of types: 1 is no true.
        if not any(type(option) is type(each) and option == each for each in _OPTIONS[name]):
            options = " or ".join(str(each).lower() for each in _OPTIONS[name])
            raise UsageError(f"{where}: {name} is {options}, not {option!r}")
    return ToolTraits(**value, ignore=ignored)


def undo_from_json(value: Json, where: str) -> Json:
    """One of the classes or several, as a rule names them; raises UsageError."""
    named = [value] if isinstance(value, str) else value
    if value is None or (isinstance(named, list) and named and all(each in UNDO_CLASSES for each in named)):
        return value
    raise UsageError(f"{where} must be one or more of {', '.join(UNDO_CLASSES)}")


def _ignored(names: Json, where: str) -> tuple[str, ...]:
    is_list = isinstance(names, list) and all(isinstance(name, str) and name for name in names)
    if not is_list or len(names) > MAX_IGNORED or any(len(name) > MAX_ARGUMENT_CHARS for name in names):
        raise UsageError(
            f"{where}: ignore is a list of up to {MAX_IGNORED} names of arguments, as in [description]"
        )
    return tuple(dict.fromkeys(names))


def traits_to_json(traits: ToolTraits) -> dict[str, Json]:
    """As `traits_from_json` reads it; what is ignored only if something is."""
    found: dict[str, Json] = {
        name: value for name in _OPTIONS if (value := getattr(traits, name)) is not None
    }
    return {**found, "ignore": list(traits.ignore)} if traits.ignore else found


def entries_from_json(tools: Json) -> list[ToolEntry]:
    """The lines of `tools:` in their order; raises UsageError naming the line that cannot be understood."""
    if not isinstance(tools, dict):
        raise UsageError("tools: expected a line for each tool, as in `mail/read_email: {effect: reads}`")
    entries = []
    for pattern, value in tools.items():
        where = f"tools: {pattern}"
        host, slash, tool = pattern.partition("/") if isinstance(pattern, str) else ("", "", "")
        if not (host and slash and tool):
            raise UsageError(
                f"{where}: write HOST/TOOL, as in mail/read_email; `*` stands for any of them, as in mail/*"
            )
        rest = dict(value) if isinstance(value, dict) else value
        definition = rest.pop("definition", None) if isinstance(rest, dict) else None
        if definition is not None and not (isinstance(definition, str) and definition):
            raise UsageError(f"{where}: definition is the fingerprint of what was accepted, a text")
        entries.append(ToolEntry(pattern, traits_from_json(rest, where=where), definition))
    return entries


def traits_for(entries: Sequence[ToolEntry], host: str, tool: str, definition: str | None) -> ToolTraits:
    """What the first line that matches says. `definition` is how the tool is defined now, if that is known.

    A line for another definition is void, and so is all that stands below it: the tool is unknown.
    """
    entry = entry_for(entries, host, tool)
    return entry.traits if entry is not None and entry.definition in (None, definition) else UNKNOWN_TOOL


def entry_for(entries: Sequence[ToolEntry], host: str, tool: str) -> ToolEntry | None:
    """The first line that matches a tool."""
    for entry in entries:
        host_pattern, _, tool_pattern = entry.pattern.partition("/")
        if glob(host_pattern).matches(host) and glob(tool_pattern).matches(tool):
            return entry
    return None


def traits_of_annotations(annotations: Mapping[str, Json]) -> ToolTraits:
    """What MCP's hints say, with the defaults of MCP: destructive and open unless they say otherwise.

    No hint says that results can be trusted: only an operator or a person does.
    """
    if annotations.get("readOnlyHint") is True:
        return ToolTraits(effect="reads", outside=annotations.get("openWorldHint") is not False)
    destroys = annotations.get("destructiveHint") is not False
    return ToolTraits(
        effect="destroys" if destroys else "writes", outside=annotations.get("openWorldHint") is not False
    )


def lower_by_labels(traits: ToolTraits, result: Json) -> ToolTraits:
    """What the labels of a result take from the traits of its tool; no label gives anything.

    `_meta.ifc` is what the MCP server of GitHub sends and FIDES reads, the hints are those of SEP-1913. They
    count on the result and on each block of its content, with or without a prefix.
    """
    blocks = result.get("content") if isinstance(result, dict) else None
    for part in (result, *(blocks[:MAX_LABELLED_BLOCKS] if isinstance(blocks, list) else ())):
        for labels in (part.get("_meta"), part.get("annotations")) if isinstance(part, dict) else ():
            for name, value in labels.items() if isinstance(labels, dict) else ():
                traits = _lower(traits, name.rpartition("/")[2], value)
    return traits


def _lower(traits: ToolTraits, name: str, value: Json) -> ToolTraits:
    if name == "ifc":
        label = value if isinstance(value, dict) else {"integrity": "", "confidentiality": ""}
        if label.get("integrity", "trusted") != "trusted":
            traits = replace(traits, returns="others")
        return traits if label.get("confidentiality", "public") == "public" else replace(traits, private=True)
    if name in _UNTRUSTED_HINTS and value not in (False, None):
        return replace(traits, returns="others")
    return replace(traits, private=True) if name in _PRIVATE_HINTS and value not in (False, None) else traits


def describe_traits(tool: str, traits: ToolTraits) -> str:
    """In one line: `results of read_email contain what others write and what is private; it only reads`."""
    results = {
        "others": "contain what others write",
        "records": "are records in which others write",
        "trusted": "can be trusted",
    }[traits.returns]
    if traits.private:
        results += " and what is private" if traits.returns == "others" else " and contain what is private"
    effects = {"reads": "only reads", "writes": "changes something", "destroys": "can destroy something"}
    reach = " and reaches the outside" if traits.outside else ""
    undone = f", and it is {traits.undo}" if traits.undo else ""
    ignored = f"; {', '.join(traits.ignore)} may be any plain words" if traits.ignore else ""
    return f"results of {tool} {results}; it {effects[traits.effect]}{reach}{undone}{ignored}"
