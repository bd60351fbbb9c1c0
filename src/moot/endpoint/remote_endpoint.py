"""One endpoint that is called: who it is, what it announced last, and what it offers.

The announce is the endpoint's own word, signed by its key: from it come the key to seal for and the sign that
the catalog changed (D-71). Of two announces the later one counts, whatever order a relay tells them in; so
an old one that is told again brings nothing back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from moot.endpoint.catalog_pages import LIST_KIND, Page, read_contracts, read_page
from moot.endpoint.document_fetch import BadDocument, FetchPolicy, fetch_json
from moot.endpoint.endpoint_caller import (
    NO_CREDENTIALS,
    CalledEndpoint,
    CallProofs,
    EndpointCaller,
    EndpointFault,
    FollowedResource,
    OnUpdate,
)
from moot.endpoint.event_listener import EventListener
from moot.errors import InvalidKey, InvalidStatement, MootError, TimedOut, Unreachable
from moot.identity.keys import sealing_point
from moot.protocol.operation import Json
from moot.xprotocol.announcement import schemas_digest
from moot.xprotocol.contracts import Contract, ContractRefused
from moot.xprotocol.events import ANNOUNCE, REVOKE, SignedPublic
from moot.xprotocol.key_statements import read_revocation

log = logging.getLogger(__name__)

# A page of the catalog. An endpoint that does not know the kind says so at once; one that is silent is not
# waited for as long as for a tool.
LIST_SECONDS: Final = 10.0
MAX_PAGES: Final = 64
# A catalog that changes while it is read is begun anew; one that always does is taken as it is.
LIST_TRIES: Final = 3
# For the first announce, when nothing else tells the key to seal for; and once a relay has told all it has.
ANNOUNCE_SECONDS: Final = 10.0
GRACE_SECONDS: Final = 1.0
# Unreadable contracts that are told of.
MAX_UNREAD: Final = 100
# Where the document has a whole catalog: a plain list, or the one member of this name.
_LISTS: Final = ("schemas", "contracts")


@dataclass(frozen=True, slots=True)
class LatestAnnounce:
    """The newest that was heard."""

    timestamp: int
    enc_key: str | None
    digest: str | None
    display_name: str


@dataclass(frozen=True, slots=True)
class RemoteContractCatalog:
    """All contracts of an endpoint, by kind; `unread` are those that are none, and why."""

    contracts: tuple[Contract, ...]
    unread: tuple[tuple[str, str], ...] = ()
    # Whether the key itself said so, or the web server of its host did.
    signed: bool = True
    # More than are taken; so many were left.
    omitted: int = 0


class RemoteEndpoint:
    """Made for as long as a source is configured. `on_announce` gets whether the catalog may differ."""

    def __init__(
        self,
        key: str,
        hearing: EventListener,
        caller: EndpointCaller,
        *,
        enc_key: str | None = None,
        schema_url: str | None = None,
        reach: FetchPolicy | None = None,
        credentials: CallProofs = NO_CREDENTIALS,
        most: int = 1_000,
        on_announce: Callable[[bool], None] = lambda _changed: None,
    ) -> None:
        self.key = key
        self.announce: LatestAnnounce | None = None
        self.is_revoked = False
        self._hearing = hearing
        self._caller = caller
        self._enc_key = enc_key
        self._schema_url = schema_url
        self._reach = reach if reach is not None else FetchPolicy()
        self._credentials = credentials
        self._most = most
        self._on_announce = on_announce
        self._announced = asyncio.Event()
        # Once it said that it knows no such kind, it is asked no more.
        self._lists = True
        hearing.add(key, self._heard)

    def close(self) -> None:
        self._hearing.remove(self.key, self._heard)

    # What it says publicly

    def _heard(self, signed: SignedPublic) -> None:
        event = signed.event
        if event.kind == REVOKE:
            try:
                self.is_revoked |= read_revocation(signed).revoked_key == self.key
            except InvalidStatement as fault:
                log.info("a revocation is none", extra={"sender": self.key, "fault": fault.message})
            return
        if event.kind != ANNOUNCE or (self.announce and event.timestamp <= self.announce.timestamp):
            return
        digest, name = event.payload.get("schemas_digest"), event.payload.get("display_name")
        before = self.announce
        self.announce = LatestAnnounce(
            event.timestamp,
            event.sender_enc_key,
            digest if isinstance(digest, str) else None,
            name[:200] if isinstance(name, str) else "",
        )
        self._announced.set()
        same = before is not None and before.digest is not None and before.digest == self.announce.digest
        self._on_announce(not same)

    async def peer(self) -> CalledEndpoint:
        """Whom to ask; raises Unreachable when nobody has said what to seal for it with."""
        if self.is_revoked:
            raise Unreachable(f"the key {self.key} was revoked by its owner: ask for the endpoint's new key")
        told = self.announce.enc_key if self.announce is not None else None
        enc_key = told or self._enc_key
        if enc_key is None:
            seconds = GRACE_SECONDS if self._hearing.is_ready else ANNOUNCE_SECONDS
            try:
                async with asyncio.timeout(seconds):
                    await self._announced.wait()
            except TimeoutError:
                relays = self._hearing.relays
                raise Unreachable(
                    f"no announce of {self.key} on {relays.url or ', '.join(relays.urls)} within "
                    f"{seconds:g} s: is the endpoint running, and does it use this relay?"
                    + (f" ({relays.last_fault})" if relays.url is None and relays.last_fault else "")
                ) from None
            enc_key = self.announce.enc_key if self.announce is not None else None
            if enc_key is None:
                raise Unreachable(f"the announce of {self.key} names no encryption key")
        try:
            sealing_point(enc_key)
        except InvalidKey as fault:
            raise Unreachable(f"{self.key} names an encryption key that is none: {fault}") from None
        return CalledEndpoint(self.key, enc_key)

    # Asking it

    async def call(self, kind: str, payload: Json, *, within: float, proofs: bool = True) -> Json:
        """Raises what `Caller.call` raises. `proofs` False: for a kind with an argument of that name."""
        credentials = self._credentials if proofs else replace(self._credentials, proofs=())
        return await self._asked(kind, payload, within, credentials)

    async def _asked(self, kind: str, payload: Json, within: float, credentials: CallProofs) -> Json:
        return await self._caller.call(
            await self.peer(),
            kind,
            payload,
            by=self._hearing.relays,
            within=within,
            credentials=credentials,
        )

    async def follow(
        self, kind: str, payload: Json, *, updated_kind: str, on_update: OnUpdate, within: float
    ) -> FollowedResource:
        """Raises what `Caller.call` raises."""
        return await self._caller.follow(
            await self.peer(),
            kind,
            payload,
            updated_kind=updated_kind,
            on_update=on_update,
            by=self._hearing.relays,
            within=within,
            credentials=self._credentials,
        )

    async def contract_catalog(self, kinds: tuple[str, ...] = ()) -> RemoteContractCatalog:
        """What it offers, all of it or these kinds: from the key itself, or else from its host.

        Raises MootError when neither says.
        """
        trouble: MootError | None = None
        if self._lists or self._schema_url is None:
            try:
                return await self._listed(kinds)
            except EndpointFault as fault:
                # It is there, and does not know the kind: no reason to ask again.
                self._lists = fault.fault.code != "NOT_FOUND"
                trouble = fault
            except (TimedOut, Unreachable, ContractRefused) as fault:
                trouble = fault
        if self._schema_url is None:
            raise trouble or Unreachable(f"{self.key} offers no catalog")
        return await self._fetched(kinds)

    async def _listed(self, kinds: tuple[str, ...]) -> RemoteContractCatalog:
        for _ in range(LIST_TRIES):
            pages = await self._pages(kinds)
            if len({page.digest for page in pages}) == 1:
                break
        found: dict[str, Contract] = {}
        unread: list[tuple[str, str]] = []
        for page in pages:
            unread += page.unread
            for contract in page.contracts:
                if contract.kind in found:
                    unread.append((contract.kind, "listed twice: the first one counts"))
                else:
                    found[contract.kind] = contract
        return self._bounded(found, unread, kinds, signed=True)

    async def _pages(self, kinds: tuple[str, ...]) -> list[Page]:
        pages: list[Page] = []
        question: dict[str, Json] = {"kinds": list(kinds)} if kinds else {}
        count = 0
        while len(pages) < MAX_PAGES:
            # Anybody may ask, and a delegation that does not hold would have it refused.
            page = read_page(await self._asked(LIST_KIND, question, LIST_SECONDS, NO_CREDENTIALS))
            pages.append(page)
            count += len(page.contracts)
            if page.next is None or count > self._most:
                return pages
            if page.next <= question.get("after", ""):
                raise ContractRefused("malformed", "the pages of the catalog go round in circles")
            question["after"] = page.next
        raise ContractRefused("too_large", f"the catalog has more than {MAX_PAGES} pages")

    async def _fetched(self, kinds: tuple[str, ...]) -> RemoteContractCatalog:
        url = self._schema_url or ""
        value = await fetch_json(url, self._reach)
        if isinstance(value, dict):
            value = next((value[name] for name in _LISTS if isinstance(value.get(name), list)), None)
        if not isinstance(value, list):
            raise BadDocument(f"{url} holds no list of schemas")
        contracts, told = read_contracts(value)
        unread = list(told)
        found: dict[str, Contract] = {}
        for contract in contracts:
            if contract.kind in found:
                unread.append((contract.kind, "listed twice: the first one counts"))
            else:
                found[contract.kind] = contract
        if self.announce is not None and self.announce.digest not in (None, schemas_digest(found.values())):
            unread.append(("", "the catalog at schema_url is not the one that the endpoint announced"))
        return self._bounded(found, unread, kinds, signed=False)

    def _bounded(
        self,
        found: dict[str, Contract],
        unread: list[tuple[str, str]],
        kinds: tuple[str, ...],
        *,
        signed: bool,
    ) -> RemoteContractCatalog:
        wanted = [found[kind] for kind in sorted(found) if not kinds or kind in kinds]
        return RemoteContractCatalog(
            tuple(wanted[: self._most]),
            tuple(unread[:MAX_UNREAD]),
            signed,
            max(0, len(wanted) - self._most),
        )
