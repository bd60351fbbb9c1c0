"""What the adapter publishes, and the routes from a kind to the server behind it (XP 7.1, D-71).

Every source has its own publication; a new one replaces the old one of that source as a whole. Versions come
from a registry of everything that was ever published. Its file is written before a new version is published,
so that no version ever stands for two definitions.

Translating is slow (a grammar takes 2 to 10 ms), so it happens in a thread, one source at a time, and
grammars are kept by the schema that they were made from.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal

from moot import __version__
from moot.errors import MootError, UsageError
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json
from moot.protocol.strict_json import encode
from moot.resilience.atomic_file import write_atomically
from moot.xprotocol.contracts.contract_catalog import ContractCatalog
from moot.xprotocol.contracts.contracts import Contract, ContractRefused
from moot.xprotocol.contracts.payload_validation import Validator
from moot.xprotocol.contracts.source_overrides import SourceSettings
from moot.xprotocol.contracts.versions import (
    EMPTY,
    VersionChange,
    VersionRegistry,
    load_registry,
    save_registry,
)
from moot.xprotocol.events.event_receiver import KindTerms
from moot.xprotocol.grammar import compile_grammar
from moot.xprotocol.translation.announcement import schemas_digest
from moot.xprotocol.translation.call_translation import answers_structured, terms_of
from moot.xprotocol.translation.publication import Publication, ServerOffer, kinds_of, publish
from moot.xprotocol.translation.resources import Subscribable
from moot.xprotocol.translation.translation import CompiledGrammar

log = logging.getLogger(__name__)

VERSIONS_FILE: Final = "versions.json"
# Of one namespace, ever: five times what one list may have. Their file is written anew with each change.
MAX_KINDS: Final = 10_000
# Some 10 KiB each: more schemas than one adapter publishes, less than a hostile server could fill.
MAX_GRAMMARS: Final = 2_048

RouteTarget = Literal["tool", "prompt", "subscribe"]


@dataclass(frozen=True, slots=True)
class KindRoute:
    """From a kind to what answers it."""

    source: str
    target: RouteTarget
    contract: Contract
    terms: KindTerms
    # The answer's members are the tool's own (D-67).
    structured: bool
    # The name at the server; empty for subscriptions.
    name: str
    response_kind: str
    # Which resources may be requested; for subscriptions only.
    subscribable: Subscribable | None = None
    # For tools with an outputSchema: checks result and answer. Raises ContractRefused.
    check_answer: Callable[[Json, Json], None] | None = None


class GrammarCache:
    """`compile_grammar`, cached by schema. May be called from a thread."""

    def __init__(self, max_grammars: int = MAX_GRAMMARS) -> None:
        self._grammars: LatestDict[bytes, CompiledGrammar] = LatestDict(max_grammars)
        self.compiled = 0

    def __call__(self, schema: Json) -> CompiledGrammar:
        # The order of members counts: the grammar writes them in it.
        digest = sha256(encode(schema)).digest()
        found = self._grammars.get(digest)
        if found is None:
            self.compiled += 1
            found = compile_grammar(schema)
            self._grammars[digest] = found
        return found


@dataclass(frozen=True, slots=True)
class ReservedKinds(Collection[str]):
    """Kinds that are another source's: those that it has, and all within its namespace.

    A tool may be called `desk.read_note`: in `com.acme` it would pass for one of `com.acme.desk`, at least
    while the server of that one is away.
    """

    kinds: frozenset[str]
    namespaces: tuple[str, ...] = ()

    def __contains__(self, kind: object) -> bool:
        return isinstance(kind, str) and (
            kind in self.kinds or any(kind.startswith(f"{namespace}.") for namespace in self.namespaces)
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.kinds)

    def __len__(self) -> int:
        return len(self.kinds)


@dataclass(frozen=True, slots=True)
class RegistryUpdate:
    """What changed with a source's new lists."""

    publication: Publication
    changes: tuple[VersionChange, ...]
    # Kinds that are no longer published.
    gone: tuple[str, ...]


def read_versions(file: Path | None) -> VersionRegistry:
    """The versions that were published before; raises UsageError when the file cannot be used."""
    try:
        return EMPTY if file is None else load_registry(file.read_bytes())
    except FileNotFoundError:
        return EMPTY
    except OSError as fault:
        raise UsageError(f"{file}: cannot be read: {fault.strerror or fault}") from None
    except UsageError as fault:
        raise UsageError(
            f"{file}: {fault}. Restore it from a copy, or remove it to begin again at 1.0.0"
        ) from None


class ContractRegistry:
    """The published contracts of all sources. Belongs to one loop; open it with `open`."""

    def __init__(self, file: Path | None, versions: VersionRegistry, *, adapter_version: str) -> None:
        self.adapter_version = adapter_version
        self.catalog = ContractCatalog()
        self.grammars = GrammarCache()
        self._file = file
        self._versions = versions
        self._publications: dict[str, Publication] = {}
        self._routes: dict[str, KindRoute] = {}
        self._kinds_of_source: dict[str, frozenset[str]] = {}
        self._logged_notices: dict[str, frozenset[tuple[str, str]]] = {}
        self._lock = asyncio.Lock()
        self._save_lock = threading.Lock()
        self._digest: str | None = None

    @classmethod
    def open(cls, folder: Path | None, *, adapter_version: str = __version__) -> ContractRegistry:
        """With the versions that were published before; raises UsageError when their file cannot be used."""
        file = None if folder is None else folder / VERSIONS_FILE
        return cls(file, read_versions(file), adapter_version=adapter_version)

    # Looking up

    def route(self, kind: str) -> KindRoute | None:
        """What answers a kind."""
        return self._routes.get(kind)

    def publication(self, source: str) -> Publication | None:
        return self._publications.get(source)

    def contracts(self) -> list[Contract]:
        """All of them, sorted by kind."""
        return self.catalog.contracts()

    @property
    def digest(self) -> str:
        """Differs when any contract does."""
        if self._digest is None:
            self._digest = schemas_digest(self.catalog.contracts())
        return self._digest

    # Changing

    async def publish_source(
        self, source: str, settings: SourceSettings, offer: ServerOffer, *, reserved: tuple[str, ...] = ()
    ) -> RegistryUpdate:
        """Publish what a source offers now in place of what it offered before.

        `reserved` are namespaces inside its own that belong to other sources, whether or not these are up.
        Raises UsageError for settings that cannot work, and when the versions cannot be saved: then
        everything stays as it was.
        """
        async with self._lock:
            others = ReservedKinds(
                frozenset[str]().union(
                    *(kinds for name, kinds in self._kinds_of_source.items() if name != source)
                ),
                reserved,
            )
            publication, routes = await asyncio.to_thread(self._translate, source, settings, offer, others)
            if publication.changes:
                _check_kinds(settings.namespace, publication.registry)
                await asyncio.to_thread(self._save, publication.registry)
            self._versions = publication.registry
            update = self._replace(source, publication, routes)
        self._log_notices(source, publication)
        return update

    async def remove_source(self, source: str) -> RegistryUpdate | None:
        """Remove a source and its contracts."""
        async with self._lock:
            before = self._publications.get(source)
            if before is None:
                return None
            empty = Publication((), (), (), (), self._versions, ())
            update = self._replace(source, empty, {})
            del self._publications[source], self._kinds_of_source[source]
            self._logged_notices.pop(source, None)
            return update

    def _translate(
        self, source: str, settings: SourceSettings, offer: ServerOffer, others: ReservedKinds
    ) -> tuple[Publication, dict[str, KindRoute]]:
        """In a thread; reads nothing that the loop changes meanwhile."""
        publication = publish(
            offer,
            settings,
            adapter_version=self.adapter_version,
            registry=self._versions,
            taken=others,
            compile=self.grammars,
        )
        subscribable = Subscribable(offer.resources, offer.resource_templates)
        known = self._routes
        routes: dict[str, KindRoute] = {}
        for contract in publication.contracts:
            before = known.get(contract.kind)
            terms = before.terms if before is not None and _same_request(before.contract, contract) else None
            routes[contract.kind] = _route(source, contract, terms or terms_of(contract), subscribable)
        return publication, routes

    def _replace(
        self, source: str, publication: Publication, routes: Mapping[str, KindRoute]
    ) -> RegistryUpdate:
        before = {kind for kind, route in self._routes.items() if route.source == source}
        gone = tuple(sorted(before - routes.keys()))
        for kind in gone:
            del self._routes[kind]
            self.catalog.remove(kind)
        for kind, route in routes.items():
            earlier = self._routes.get(kind)
            self._routes[kind] = route
            if earlier is None or earlier.contract != route.contract:
                try:
                    self.catalog.add(route.contract)
                except (ContractRefused, MootError) as refusal:
                    # It can be called all the same, but nobody finds it by describing what it does.
                    log.warning("not in the catalog", extra={"kind": kind, "reason": str(refusal)})
        self._publications[source] = publication
        self._kinds_of_source[source] = kinds_of(publication.contracts)
        self._digest = None
        return RegistryUpdate(publication, publication.changes, gone)

    def _save(self, versions: VersionRegistry) -> None:
        if self._file is None:
            return
        # A cancelled caller leaves its thread running.
        with self._save_lock:
            try:
                write_atomically(self._file, save_registry(versions))
            except OSError as fault:
                raise UsageError(f"{self._file}: cannot be written: {fault.strerror or fault}") from fault

    def _log_notices(self, source: str, publication: Publication) -> None:
        """XP 4.6: log a warning for each poor description; once, not with every refresh."""
        notices = [(notice.about, f"{notice.code}: {notice.message}") for notice in publication.warnings]
        notices += [(each.name, f"not published: {each.message}") for each in publication.refused]
        logged = self._logged_notices.get(source, frozenset())
        for about, notice in notices:
            if (about, notice) not in logged:
                log.warning("schema", extra={"source": source, "kind": about, "notice": notice})
        self._logged_notices[source] = frozenset(notices)


def _check_kinds(namespace: str, versions: VersionRegistry) -> None:
    """Kinds stay registered when their tool goes, so the number for one namespace is bounded."""
    known = sum(kind.startswith(f"{namespace}.") for kind in versions.entries)
    if known > MAX_KINDS:
        raise UsageError(
            f"{namespace} has had {MAX_KINDS} kinds already, and its server lists new ones: choose with "
            f"tool_allowlist, or remove {VERSIONS_FILE} from the store to begin again at 1.0.0"
        )


def _same_request(one: Contract, other: Contract) -> bool:
    return one.auth == other.auth and one.payload == other.payload


def _route(source: str, contract: Contract, terms: KindTerms, subscribable: Subscribable) -> KindRoute:
    origin = contract.source
    target: RouteTarget = "subscribe"
    name = ""
    structured = answers_structured(contract)
    if origin is not None and origin.mcp_tool is not None:
        target, name = "tool", origin.mcp_tool
    elif origin is not None and origin.mcp_prompt is not None:
        target, name = "prompt", origin.mcp_prompt
    return KindRoute(
        source=source,
        target=target,
        contract=contract,
        terms=terms,
        structured=structured,
        name=name,
        response_kind=contract.response.kind if contract.response is not None else f"{contract.kind}.result",
        subscribable=subscribable if target == "subscribe" else None,
        check_answer=_answer_check(contract) if target == "tool" and structured else None,
    )


def _answer_check(contract: Contract) -> Callable[[Json, Json], None] | None:
    """MCP: structured content has to fit the tool's outputSchema; other answers are refused."""
    if contract.response is None:
        return None
    validator = Validator(contract.response.payload)

    def check(result: Json, answer: Json) -> None:
        if result.get("isError") is not True and not validator.accepts(answer):
            raise ContractRefused("malformed", "the server's answer does not fit its own outputSchema")

    return check
