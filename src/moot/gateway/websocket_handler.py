"""WebSockets of members: the handshake, the join frame, and then message after message.

    header handshake     GET /ws?space=NAME with Authorization: joined before the first frame
    join frame           no header: {"type":"join",…} or kind system/join within 10 s (D-20)

After a header handshake a join frame changes nothing. The dialect is chosen once (dialects.md section 1):
`dialect=`, the subprotocol, `?space=` or `?topic=`, the protocol of a join envelope, else MEW.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec
import orjson

from moot.config.gateway_config import GatewayConfig
from moot.errors import MalformedEnvelope, Refused, Unauthorized, Unavailable
from moot.gateway.access import AccessDenied, KnownIdentity, SpaceDirectory, TokenIdentity
from moot.gateway.access_limiter import AccessLimiter
from moot.gateway.connect_request import (
    ConnectRequest,
    is_join,
    is_websocket_path,
    participant_in,
    read_connect_request,
    read_join,
)
from moot.gateway.host_origin_policy import HostOriginPolicy
from moot.gateway.hosting.delivery import SessionOutbox
from moot.gateway.hosting.input_applier import NewSession
from moot.gateway.hosting.space_host import SpaceHost
from moot.gateway.readiness import Readiness
from moot.net import outbox
from moot.net.outbox import Outbox
from moot.net.upgrade_request import Upgrade, UpgradeRefusal
from moot.net.websocket_frame import encode_frame
from moot.net.websocket_server import Decision, ServerSocket
from moot.protocol.close_codes import POLICY, TRY_AGAIN
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import DialectName, rfc3339
from moot.protocol.operation import Json
from moot.protocol.payloads import GatewayNotice
from moot.space.config import Name, SessionId
from moot.space.members.lookalikes import check_id
from moot.space.members.member import Options

if TYPE_CHECKING:
    from moot.gateway.cluster.gateway_relay import GatewayRelay

log = logging.getLogger(__name__)

# D-20: a connection that has not joined by then is closed.
JOIN_SECONDS: Final = 10.0
# 8 KiB: a join has a space, a token and a name. No more is read of a connection before it has joined.
MAX_JOIN_BYTES: Final = 8_192
# Two seconds of the fastest member that the default limits of a space allow.
OUTBOX_MESSAGES: Final = 4_096
# The same in bytes; kept once for all that wait for it.
OUTBOX_BYTES: Final = 16 << 20
_TRY_AGAIN_CODES: Final = frozenset({"resource_limit", "rate_limited", "unavailable"})


class UpgradeHandler:
    """Decides on every upgrade; `admit` goes behind the WebSocket server."""

    def __init__(
        self,
        directory: SpaceDirectory,
        origin_policy: HostOriginPolicy,
        config: GatewayConfig,
        readiness: Readiness,
        access_limiter: AccessLimiter,
        relay: GatewayRelay | None,
    ) -> None:
        self._relay = relay
        self.access_limiter = access_limiter
        self.directory = directory
        self.origin_policy = origin_policy
        self.readiness = readiness
        self.config = config
        self.sockets: set[MemberSocket] = set()

    def admit(self, upgrade: Upgrade) -> Decision | asyncio.Future[Decision]:
        """An HTTP answer, or the handler of the new connection; in a cluster it may have to be waited for."""
        denied = self.origin_policy.check(upgrade.headers.get("host"), upgrade.headers.get("origin"))
        if denied is not None:
            return _refusal(denied)
        if self.readiness.phase != "running":
            # Whoever was told to go may be back before the port is closed: nobody would be behind its socket.
            again = f"the gateway is {self.readiness.phase}: try again in a moment"
            return _refusal(AccessDenied(503, again, retry_after=1))
        if self.readiness.is_cut_off():
            cut_off = "this gateway is cut off from its cluster: connect to another one"
            return _refusal(AccessDenied(503, cut_off, retry_after=1))
        try:
            parts = urlsplit(upgrade.path)
        except ValueError:
            return _refusal(AccessDenied(400, "that is no path"))
        if not is_websocket_path(parts.path):
            return _refusal(AccessDenied(404, "WebSockets are at /, /ws and /participants/{id}/ws"))
        try:
            request = read_connect_request(
                parts.query, upgrade.headers, allow_query_token=self.config.allow_query_token
            )
        except Refused as refusal:
            return _refusal(AccessDenied(400, refusal.message))
        if self._relay is not None and (space := self._relay.space_of(request.space, upgrade)):
            return self._relay.upgrade(upgrade, space, self.admit)
        if request.token is None and "authorization" not in upgrade.headers:
            return MemberSocket(self, request, None)

        def decide(identity: TokenIdentity | AccessDenied) -> Decision:
            if isinstance(identity, AccessDenied):
                return _refusal(identity)
            return MemberSocket(self, request, identity)

        asked = (request.space, request.token, upgrade.peer, participant_in(parts.path))
        if not self.may_become_known(request.space, request.token, upgrade.peer):
            return decide(self.identify(*asked))
        decided: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self.identify_later(*asked, lambda identity: decided.set_result(decide(identity)))
        return decided

    def identify(
        self, space: str | None, token: str | None, address: str, name: str | None
    ) -> TokenIdentity | AccessDenied:
        """Whose token this is, if that one may join now. `name` is who it is said to be."""
        return self._admit(self.directory.identify(space, token), token, address, name)

    def _admit(
        self, identity: KnownIdentity, token: str | None, address: str, name: str | None
    ) -> TokenIdentity | AccessDenied:
        if isinstance(identity, Unavailable):
            return AccessDenied(503, identity.message, retry_after=1)
        if isinstance(identity, AccessDenied):
            return identity if not token else self.access_limiter.refuse_token(identity, address, name)
        return self.access_limiter.check_join(identity, address) or identity

    def may_become_known(self, space: str | None, token: str | None, address: str) -> bool:
        """Whether nobody has this token here, and the cluster's log may tell otherwise in a moment."""
        directory = self.directory
        if directory.when_current is None or not token or directory.is_of_provider(token):
            # A token of a provider is looked at once: a refusal is in the journal.
            return False
        return directory.may_become_known(directory.identify(space, token), token, address)

    def identify_later(
        self,
        space: str | None,
        token: str | None,
        address: str,
        name: str | None,
        call: Callable[[TokenIdentity | AccessDenied], None],
    ) -> None:
        """`identify`, when what is in the cluster's log by now is known here."""
        self.directory.when_known(
            space, token or "", lambda found: call(self._admit(found, token, address, name))
        )


class MemberSocket:
    """One WebSocket of one participant; before it has joined it is sent nothing (D-21)."""

    def __init__(
        self, upgrade_handler: UpgradeHandler, request: ConnectRequest, identity: TokenIdentity | None
    ) -> None:
        self.subprotocol = request.subprotocol
        # A stranger's first message is a join, and that is short.
        self.max_first_bytes = MAX_JOIN_BYTES if identity is None else None
        self.session: SessionId | None = None
        self.host: SpaceHost | None = None
        self.dialect: DialectName = request.dialect or "mew"
        self._upgrade_handler = upgrade_handler
        self._request = request
        self._identity = identity
        self._connection: ServerSocket | None = None
        # None before joining, and where the fast path is not built.
        self._accept_fast: Callable[[bytes], bool] | None = None
        self._outbox = Outbox(
            self.dialect,
            self._disconnect_slow,
            max_bytes=OUTBOX_BYTES,
            max_messages=OUTBOX_MESSAGES,
        )
        self._join_timer: asyncio.TimerHandle | None = None
        self._full_timer: asyncio.TimerHandle | None = None
        # After a header handshake existing clients still send a join: as the first frame it is no news.
        self._may_repeat_join = identity is not None
        # Of somebody who signed in elsewhere: a join frame with a newer token lets the connection go on.
        self._may_renew = False
        # What came while the token of its join was looked for in the cluster's log.
        self._early: list[tuple[bytes, bool]] | None = None

    # What the connection calls

    def opened(self, connection: ServerSocket) -> None:
        self._connection = connection
        self._upgrade_handler.sockets.add(self)
        self._outbox.attach(connection)
        if self._identity is not None:
            self._join(self._identity, self._request.options)
            return
        seconds = JOIN_SECONDS
        loop = asyncio.get_running_loop()
        late = f"no join within {seconds:g} s"
        self._join_timer = loop.call_later(seconds, self._reject, "unauthorized", late)

    def received(self, data: bytes, binary: bool) -> None:
        accept = self._accept_fast
        if accept is not None and not binary and accept(data):
            return
        host, session = self.host, self.session
        if host is None or session is None:
            if self._early is not None:
                # No more than `max_first_bytes`, as before every join.
                self._early.append((data, binary))
            else:
                self._read_join(data)
            return
        if self._may_renew and is_join(data):
            self._renew(host, session, data)
            return
        if self._may_repeat_join:
            self._may_repeat_join = False
            if is_join(data):
                return
        host.receive(session, self.dialect, data, binary)

    def closed(self) -> None:
        self._upgrade_handler.sockets.discard(self)
        self._stop_full_timer()
        if self._join_timer is not None:
            self._join_timer.cancel()
        self._outbox.detach()
        if self.host is not None and self.session is not None:
            self.host.leave(self.session)
        self._connection = None

    def full(self) -> None:
        loop = asyncio.get_running_loop()
        self._outbox.pause(loop.time())
        if self._full_timer is None:
            # Also when nothing more is said: whoever took nothing for so long is stuck.
            seconds = outbox.MAX_SECONDS
            stuck = f"{seconds:g} s behind"
            self._full_timer = loop.call_later(seconds, self._disconnect_slow, stuck)

    def drained(self) -> None:
        self._stop_full_timer()
        self._outbox.resume(asyncio.get_running_loop().time())

    def _stop_full_timer(self) -> None:
        if self._full_timer is not None:
            self._full_timer.cancel()
            self._full_timer = None

    def flush(self) -> None:
        if self.host is not None:
            self.host.delivery.flush()

    # Joining

    def _join(self, identity: TokenIdentity, options: Options) -> None:
        host = identity.host
        session = host.order.new_session()
        options = msgspec.structs.replace(options, anonymous=identity.guest, token=identity.token)
        self._outbox.dialect = self.dialect

        def attach() -> None:
            self.host, self.session = host, session
            temporary = host.space.state.temporary_tokens.get(identity.token or "")
            # In a cluster the space knows them a moment later.
            self._may_renew = identity.sign_in is not None or (
                temporary is not None and temporary.source == "sign_in"
            )
            self._accept_fast = host.fast_paths.acceptor_of(session)
            host.delivery.attach(
                session, SessionOutbox(self._outbox, self.dialect, identity.name, self.close)
            )

        def reject(refusal: Refused) -> None:
            self.host = self.session = None
            self._reject(refusal.code, refusal.message, **refusal.details)

        try:
            identity.admit()
            if options.runtime_id is not None:
                roster = host.space.state.roster
                check_id(roster, options.runtime_id, by=roster.members.get(Name(identity.name)))
        except Refused as refusal:
            reject(refusal)
            return
        host.order.join(NewSession(session, identity.name, self.dialect, options), attach, reject)
        if self.session is None:
            return
        if self._join_timer is not None:
            self._join_timer.cancel()
            self._join_timer = None
        if self._connection is not None:
            self._connection.accept_all()
        log.info("joined", extra={"space": host.name, "participant": identity.name, "session": session})

    def _read_join(self, data: bytes) -> None:
        """D-20: the first frame says who joins which space; anything else is rejected."""
        try:
            asked = read_join(data, self._request)
        except MalformedEnvelope as fault:
            self._reject(fault.code, f"join first: {fault.message}")
            return
        self.dialect = asked.dialect or "mew"
        handler, space, token, options = self._upgrade_handler, asked.space, asked.token, asked.options
        if not handler.may_become_known(space, token, self._address):
            self._join_as(handler.identify(space, token, self._address, options.runtime_id), options)
            return
        self._early = []
        handler.identify_later(
            space, token, self._address, options.runtime_id, lambda found: self._join_late(found, options)
        )

    def _join_late(self, identity: TokenIdentity | AccessDenied, options: Options) -> None:
        early, self._early = self._early or [], None
        if self not in self._upgrade_handler.sockets:
            # It hung up meanwhile.
            return
        self._join_as(identity, options)
        if self.session is not None:
            for data, binary in early:
                self.received(data, binary)

    def _join_as(self, identity: TokenIdentity | AccessDenied, options: Options) -> None:
        if isinstance(identity, TokenIdentity):
            self._join(identity, options)
        elif identity.status == 503:
            self._reject("unavailable", identity.message)
        elif identity.retry_after is not None:
            self._reject("rate_limited", identity.message, retry_after=identity.retry_after)
        else:
            self._reject("unauthorized", identity.message)

    def _renew(self, host: SpaceHost, session: SessionId, data: bytes) -> None:
        """Take a newer token of the same person over; a wrong one is answered, and changes nothing."""
        try:
            token = read_join(data, self._request).token
            identity = self._upgrade_handler.identify(host.name, token, self._address, None)
            if isinstance(identity, AccessDenied):
                raise Unauthorized(identity.message)
            identity.admit()
        except Refused as refusal:
            host.refusals.answer(session, refusal, len(data))
            return
        host.rights.renew(
            session, identity.token or "", lambda refusal: host.refusals.answer(session, refusal, len(data))
        )

    @property
    def _address(self) -> str:
        return self._connection.peer if self._connection is not None else ""

    # Ending

    def close(self, code: int, reason: str) -> None:
        if self._connection is not None:
            self._connection.close(code, reason)

    def _reject(self, code: str, message: str, *, retry_after: float | None = None, **details: Json) -> None:
        """D-21: a bad join gets an error, then close code 1008; 1013 where trying again makes sense."""
        if self._connection is None:
            return
        payload: dict[str, Json] = {"error": code, "message": message, **details}
        if retry_after is not None:
            payload["retry_after"] = round(retry_after, 3)
            message += f"; retry after {math.ceil(retry_after)} s"
        notice = GatewayNotice("system/error", str(uuid.uuid4()), rfc3339(time.time()), payload)
        raw = DIALECTS[self.dialect].encode_notice(notice)
        if raw is not None:
            self._connection.write(encode_frame(raw))
        self._connection.close(TRY_AGAIN if code in _TRY_AGAIN_CODES else POLICY, message)

    def _disconnect_slow(self, how_far: str) -> None:
        log.info("slow", extra={"session": self.session, "behind": how_far})
        self._stop_full_timer()
        self._outbox.detach()
        self.close(TRY_AGAIN, f"reading too slowly: {how_far}")


def _refusal(denied: AccessDenied) -> UpgradeRefusal:
    body: dict[str, Json] = {"error": denied.message}
    if denied.retry_after is not None:
        body["retry_after"] = round(denied.retry_after, 3)
    return UpgradeRefusal(denied.status, orjson.dumps(body), denied.headers)
