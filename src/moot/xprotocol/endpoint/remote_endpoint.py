"""A remote endpoint: its key, its latest announce, and its catalog.

The announce is signed by the endpoint's key: it has the encryption key and tells that the catalog changed
(D-71). Of two announces the later one counts, in whatever order a relay sends them, so a replayed one changes
nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from moot import tracing
from moot.errors import InvalidKey, InvalidStatement, MootError, TimedOut, Unreachable
from moot.protocol.operation import Json
from moot.xprotocol.contracts.contracts import Contract, ContractRefused
from moot.xprotocol.endpoint.catalog_pages import LIST_KIND, CatalogPage, read_contracts, read_page
from moot.xprotocol.endpoint.document_fetch import BadDocument, FetchPolicy, fetch_json
from moot.xprotocol.endpoint.endpoint_caller import (
    NO_PROOFS,
    CalledEndpoint,
    CallProofs,
    EndpointCaller,
    EndpointFault,
    FollowedResource,
    OnUpdate,
)
from moot.xprotocol.endpoint.event_listener import EventListener
from moot.xprotocol.events.event_receiver import META, PROOFS
from moot.xprotocol.events.events import ANNOUNCE, REVOKE, SignedPublic
from moot.xprotocol.events.key_statements import read_revocation
from moot.xprotocol.identity.keys import sealing_point, signing_point
from moot.xprotocol.translation.announcement import schemas_digest

log = logging.getLogger(__name__)

# Timeout for a page of the catalog.
LIST_SECONDS: Final = 10.0
MAX_PAGES: Final = 64
# Tries to read a catalog that changes meanwhile; the last one is used as it is.
LIST_TRIES: Final = 3
# Wait for the first announce when the encryption key is unknown; and after a relay has sent all it has.
ANNOUNCE_SECONDS: Final = 10.0
READY_ANNOUNCE_SECONDS: Final = 1.0
# Invalid contracts that are reported.
MAX_INVALID: Final = 100
# Parents of one endpoint whose revocations are heard.
MAX_PARENTS: Final = 8
# A catalog document is a plain list, or an object with one of these members.
_LIST_MEMBERS: Final = ("schemas", "contracts")


@dataclass(frozen=True, slots=True)
class LatestAnnounce:
    """The newest announce."""

    timestamp: int
    enc_key: str | None
    digest: str | None
    display_name: str
    # It knows what `_meta.traceparent` in a payload is.
    takes_trace: bool = False


@dataclass(frozen=True, slots=True)
class RemoteContractCatalog:
    """All contracts of an endpoint, by kind; `invalid` are unusable entries, and why."""

    contracts: tuple[Contract, ...]
    invalid: tuple[tuple[str, str], ...] = ()
    # Whether it was signed by the key itself, or came from the host's web server.
    signed: bool = True
    # Contracts beyond the limit.
    omitted: int = 0


class RemoteEndpoint:
    """One endpoint. `on_announce` gets whether the catalog may differ."""

    def __init__(
        self,
        key: str,
        listener: EventListener,
        caller: EndpointCaller,
        *,
        enc_key: str | None = None,
        schema_url: str | None = None,
        fetch_policy: FetchPolicy | None = None,
        credentials: CallProofs = NO_PROOFS,
        max_contracts: int = 1_000,
        on_announce: Callable[[bool], None] = lambda _changed: None,
        revoked_by: str | None = None,
    ) -> None:
        self.key = key
        self.announce: LatestAnnounce | None = None
        # Who revoked its key: itself, or a key that it announced as its parent.
        self.revoked_by = revoked_by
        # Keys that it named in announces; the first ones, so that a thief of the key cannot push them out.
        self._parents: list[str] = []
        self._listener = listener
        self._caller = caller
        self._enc_key = enc_key
        self._schema_url = schema_url
        self._fetch_policy = fetch_policy if fetch_policy is not None else FetchPolicy()
        self._credentials = credentials
        self._max_contracts = max_contracts
        self._on_announce = on_announce
        self._announced = asyncio.Event()
        # False after it answered that it does not know the kind.
        self._can_list = True
        listener.add(key, self._process_public)

    def close(self) -> None:
        for key in (self.key, *self._parents):
            self._listener.remove(key, self._process_public)

    @property
    def is_revoked(self) -> bool:
        return self.revoked_by is not None or self._caller.is_revoked(self.key)

    # Announces and revocations

    def _process_public(self, signed: SignedPublic) -> None:
        event = signed.event
        if event.kind == REVOKE:
            self._process_revocation(signed)
            return
        if event.kind != ANNOUNCE or event.sender != self.key:
            return
        self._add_parent(event.payload.get("parent_key"))
        proofs = event.payload.get("delegations")
        for proof in proofs[:MAX_PARENTS] if isinstance(proofs, list) else ():
            # Whoever stands above its parent may revoke it as well.
            self._add_parent(proof.get("sender") if isinstance(proof, dict) else None)
        if self.announce and event.timestamp <= self.announce.timestamp:
            return
        digest, name = event.payload.get("schemas_digest"), event.payload.get("display_name")
        before = self.announce
        self.announce = LatestAnnounce(
            event.timestamp,
            event.sender_enc_key,
            digest if isinstance(digest, str) else None,
            name[:200] if isinstance(name, str) else "",
            event.payload.get("trace_context") is True,
        )
        self._announced.set()
        same = before is not None and before.digest is not None and before.digest == self.announce.digest
        self._on_announce(not same)

    def _process_revocation(self, signed: SignedPublic) -> None:
        try:
            concerns_it = read_revocation(signed).revoked_key == self.key
        except InvalidStatement as fault:
            log.info("an invalid revocation", extra={"sender": signed.event.sender, "fault": fault.message})
            return
        if concerns_it and self.revoked_by is None:
            self.revoked_by = signed.event.sender
            self._caller.fail_calls(self.key, self.revocation())
            self._on_announce(True)

    def _add_parent(self, parent: Json) -> None:
        """Listen to what a parent revokes."""
        if not isinstance(parent, str) or parent == self.key or parent in self._parents:
            return
        try:
            signing_point(parent)
        except InvalidKey:
            return
        if len(self._parents) < MAX_PARENTS:
            self._parents.append(parent)
            self._listener.add(parent, self._process_public)

    def revocation(self) -> Unreachable:
        """What to tell whoever calls it after it was revoked."""
        if self.revoked_by is None:
            who = "somebody who may"
        else:
            who = "its owner" if self.revoked_by == self.key else f"its parent {self.revoked_by}"
        return Unreachable(f"the key {self.key} was revoked by {who}: ask for the endpoint's new key")

    def _advice(self) -> str:
        # Without an announce nobody says who its parent is, and anybody can revoke anything.
        revokers = sorted(self._caller.revokers(self.key))
        if revokers:
            return f"it was revoked by {', '.join(revokers[:3])}; ask the endpoint's owner for its new key"
        return "is the endpoint running, and does it use this relay?"

    async def called_endpoint(self) -> CalledEndpoint:
        """Its keys; raises Unreachable when it is revoked, or the encryption key is unknown."""
        if self.is_revoked:
            raise self.revocation()
        found_key = self.announce.enc_key if self.announce is not None else None
        enc_key = found_key or self._enc_key
        if enc_key is None:
            seconds = READY_ANNOUNCE_SECONDS if self._listener.is_ready else ANNOUNCE_SECONDS
            try:
                async with asyncio.timeout(seconds):
                    await self._announced.wait()
            except TimeoutError:
                relays = self._listener.relays
                raise Unreachable(
                    f"no announce of {self.key} on {relays.url or ', '.join(relays.urls)} within "
                    f"{seconds:g} s: {self._advice()}"
                    + (f" ({relays.last_fault})" if relays.url is None and relays.last_fault else "")
                ) from None
            enc_key = self.announce.enc_key if self.announce is not None else None
            if enc_key is None:
                raise Unreachable(f"the announce of {self.key} has no encryption key")
        try:
            sealing_point(enc_key)
        except InvalidKey as fault:
            raise Unreachable(f"{self.key} announced an invalid encryption key: {fault}") from None
        return CalledEndpoint(self.key, enc_key)

    # Calls

    async def call(
        self, kind: str, payload: Json, *, timeout_seconds: float, declared: Collection[str] = ()
    ) -> Json:
        """Raises what `EndpointCaller.call` raises. `declared`: what the kind's own arguments are called."""
        credentials = replace(self._credentials, proofs=()) if PROOFS in declared else self._credentials
        if META not in declared:
            payload = self._with_trace(payload)
        return await self._call(kind, payload, timeout_seconds, credentials)

    def _with_trace(self, payload: Json) -> Json:
        """With the context of what runs here, for an endpoint that takes it; sealed like the rest."""
        if tracing.active is None or self.announce is None or not self.announce.takes_trace:
            return payload
        # Without `tracestate`: that is for programs of one's own.
        parent = tracing.active.context_members().get("traceparent")
        if parent is None or not isinstance(payload, dict) or META in payload:
            return payload
        return {**payload, META: {"traceparent": parent}}

    async def _call(self, kind: str, payload: Json, timeout_seconds: float, credentials: CallProofs) -> Json:
        return await self._caller.call(
            await self.called_endpoint(),
            kind,
            payload,
            relays=self._listener.relays,
            timeout_seconds=timeout_seconds,
            credentials=credentials,
        )

    async def follow(
        self, kind: str, payload: Json, *, updated_kind: str, on_update: OnUpdate, timeout_seconds: float
    ) -> FollowedResource:
        """Raises what `EndpointCaller.call` raises."""
        return await self._caller.follow(
            await self.called_endpoint(),
            kind,
            payload,
            updated_kind=updated_kind,
            on_update=on_update,
            relays=self._listener.relays,
            timeout_seconds=timeout_seconds,
            credentials=self._credentials,
        )

    async def contract_catalog(self, kinds: tuple[str, ...] = ()) -> RemoteContractCatalog:
        """Its contracts, all or these kinds: from the endpoint itself, or else from its host.

        Raises MootError when neither has them, and when it is revoked: its host does not know that.
        """
        if self.is_revoked:
            raise self.revocation()
        trouble: MootError | None = None
        if self._can_list or self._schema_url is None:
            try:
                return await self._list_by_events(kinds)
            except EndpointFault as fault:
                # It does not know the kind: do not try again.
                self._can_list = fault.fault.code != "NOT_FOUND"
                trouble = fault
            except (TimedOut, Unreachable, ContractRefused) as fault:
                trouble = fault
        if self._schema_url is None:
            raise trouble or Unreachable(f"{self.key} offers no catalog")
        return await self._fetch_from_url(kinds)

    async def _list_by_events(self, kinds: tuple[str, ...]) -> RemoteContractCatalog:
        for _ in range(LIST_TRIES):
            pages = await self._pages(kinds)
            if len({page.digest for page in pages}) == 1:
                break
        contracts = [contract for page in pages for contract in page.contracts]
        invalid = [each for page in pages for each in page.invalid]
        return self._make_catalog(_by_kind(contracts, invalid), invalid, kinds, signed=True)

    async def _pages(self, kinds: tuple[str, ...]) -> list[CatalogPage]:
        pages: list[CatalogPage] = []
        query: dict[str, Json] = {"kinds": list(kinds)} if kinds else {}
        count = 0
        while len(pages) < MAX_PAGES:
            # No proofs are needed, and an invalid delegation would get the call refused.
            page = read_page(await self._call(LIST_KIND, query, LIST_SECONDS, NO_PROOFS))
            pages.append(page)
            count += len(page.contracts)
            if page.next is None or count > self._max_contracts:
                return pages
            if page.next <= query.get("after", ""):
                raise ContractRefused("malformed", "the pages of the catalog form a loop")
            query["after"] = page.next
        raise ContractRefused("too_large", f"the catalog has more than {MAX_PAGES} pages")

    async def _fetch_from_url(self, kinds: tuple[str, ...]) -> RemoteContractCatalog:
        url = self._schema_url or ""
        value = await fetch_json(url, self._fetch_policy)
        if isinstance(value, dict):
            value = next((value[name] for name in _LIST_MEMBERS if isinstance(value.get(name), list)), None)
        if not isinstance(value, list):
            raise BadDocument(f"{url} has no list of schemas")
        contracts, unreadable = read_contracts(value)
        invalid = list(unreadable)
        found = _by_kind(contracts, invalid)
        if self.announce is not None and self.announce.digest not in (None, schemas_digest(found.values())):
            invalid.append(("", "the catalog at schema_url is not the one that the endpoint announced"))
        return self._make_catalog(found, invalid, kinds, signed=False)

    def _make_catalog(
        self,
        found: dict[str, Contract],
        invalid: list[tuple[str, str]],
        kinds: tuple[str, ...],
        *,
        signed: bool,
    ) -> RemoteContractCatalog:
        selected = [found[kind] for kind in sorted(found) if not kinds or kind in kinds]
        return RemoteContractCatalog(
            tuple(selected[: self._max_contracts]),
            tuple(invalid[:MAX_INVALID]),
            signed,
            max(0, len(selected) - self._max_contracts),
        )


def _by_kind(contracts: Iterable[Contract], invalid: list[tuple[str, str]]) -> dict[str, Contract]:
    """The contracts by kind; the second one of a kind is added to the invalid ones."""
    found: dict[str, Contract] = {}
    for contract in contracts:
        if found.setdefault(contract.kind, contract) is not contract:
            invalid.append((contract.kind, "listed twice: the first one is used"))
    return found
