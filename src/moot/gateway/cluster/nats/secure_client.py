"""NATS' own client, with what Moot needs otherwise: nothing is said in the clear where TLS is asked for, it
comes back whatever happened, and messages of the log are written and read without a look at each header."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any, Final

import nats.errors
from nats.aio.client import Client, Srv
from nats.aio.subscription import Subscription

from moot.config.cluster_config import ClusterConfig
from moot.errors import UsageError
from moot.resilience.task_set import check_cancelled

log = logging.getLogger(__name__)

RECONNECT_SECONDS: Final = 0.1
# With more on its way to a server, the client's own task writes, which waits for that server.
_MAX_WRITING_BYTES: Final = 64 << 10
# Subject, reply, data, and headers as they came. It must not raise.
OnRawMessage = Callable[[bytes, bytes, bytes, bytes | None], None]


class SecureClient(Client):
    """Says nothing, credentials included, to a server without TLS where TLS is asked for.

    NATS' own client believes a server that says in the clear that it needs none.
    """

    needs_tls = False
    is_leaving = False
    config: ClusterConfig

    def __init__(self) -> None:
        super().__init__()
        # By number of the subscription.
        self._raw_takers: dict[int, OnRawMessage] = {}

    async def subscribe_raw(self, subject: str, take: OnRawMessage) -> Subscription:
        """Call `take` with each message as it comes: without a task of its own, and without a look at its
        headers, which cost more than applying what is in it."""
        subscription = await self.subscribe(subject)
        self._raw_takers[subscription._id] = take
        return subscription

    async def unsubscribe_raw(self, subscription: Subscription) -> None:
        """Raises one of NATS_FAULTS; nothing is taken any more in any case."""
        del self._raw_takers[subscription._id]
        await subscription.unsubscribe()

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None
    ) -> None:
        take = self._raw_takers.get(sid)
        if take is None:
            await super()._process_msg(sid, subject, reply, data, headers)  # type: ignore[arg-type]  # None, too
        else:
            take(subject, reply, data, headers)

    async def publish_raw(self, subject: str, reply: str, headers: bytes, payload: bytes) -> None:
        """`publish` with headers as they are sent, written at once where a server takes what it is sent.

        NATS' own does that in another task. Never waits for a server; raises one of NATS_FAULTS.
        """
        if self.is_closed:
            raise nats.errors.ConnectionClosedError
        size = len(headers) + len(payload)
        if size > self._max_payload:
            raise nats.errors.MaxPayloadError
        command = b"HPUB %b %b %d %d\r\n%b%b\r\n" % (
            subject.encode(), reply.encode(), len(headers), size, headers, payload,
        )  # fmt: skip
        writer = getattr(self._transport, "_io_writer", None)
        if (
            self.is_connected
            and not self._pending
            and writer is not None
            and writer.transport.get_write_buffer_size() < _MAX_WRITING_BYTES
        ):
            writer.transport.write(command)
            return
        if self._pending and self._pending_data_size + size > self._max_pending_size:
            raise nats.errors.OutboundBufferLimitError
        self._pending.append(command)
        self._pending_data_size += len(command)
        if self._flush_queue is not None and self._flush_queue.empty():
            await self._flush_pending()

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """Of the files as they are now: certificates are renewed while a gateway runs."""
        return tls_context(self.config)

    async def close(self) -> None:
        self.is_leaving = True
        await super().close()

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if self.needs_tls and initial_connection and not info.get("tls_required"):
            raise nats.errors.SecureConnRequiredError
        await super()._process_info(info, initial_connection)

    async def _attempt_reconnect(self) -> None:
        """Reconnect until it works, or the client is closed.

        NATS' own client ends this for good with whatever it does not expect, such as uvloop's RuntimeError
        when a server dies between two lines of the handshake, and is then neither connected nor closed.
        """
        while True:
            check_cancelled()
            self._abort_transport()
            try:
                await super()._attempt_reconnect()
                return
            except Exception as fault:  # noqa: BLE001  # whatever it was: there is no other way back
                log.warning("not connected to NATS again yet", extra={"fault": repr(fault)})
                self._status = Client.RECONNECTING
                await asyncio.sleep(RECONNECT_SECONDS)

    async def _connect_to_server(self, s: Srv) -> None:
        # One whose handshake failed would stay open.
        self._abort_transport()
        await super()._connect_to_server(s)

    def _abort_transport(self) -> None:
        """Drop the old connection: to close one that has something to send to a server that is stopped takes
        until its machine answers, or a quarter of an hour."""
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()


def tls_context(config: ClusterConfig) -> ssl.SSLContext:
    """Raises UsageError where a file cannot be used."""
    try:
        context = ssl.create_default_context(cafile=config.tls_ca_file)
    except (OSError, ssl.SSLError) as fault:
        raise UsageError(f"gateway.cluster.tls_ca_file cannot be used: {fault}") from None
    if config.tls_certificate_file is not None:
        try:
            # No password: it would be asked for on the terminal.
            context.load_cert_chain(config.tls_certificate_file, config.tls_key_file, lambda: "")
        except (OSError, ssl.SSLError, ValueError) as fault:
            raise UsageError(
                f"gateway.cluster.tls_certificate_file and tls_key_file cannot be used: {fault}"
            ) from None
    return context
