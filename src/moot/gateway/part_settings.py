"""From the configuration of a gateway to the settings of its parts."""

from __future__ import annotations

from moot.config.configuration import Configuration
from moot.config.gateway_config import GatewayConfig, TlsConfig
from moot.gateway.access_limiter import AccessLimits
from moot.gateway.connect_request import SocketSettings
from moot.gateway.hosting.journal_history import HistoryLimits
from moot.gateway.http.http_settings import HttpSettings
from moot.gateway.mailer import MailSettings, Password
from moot.net.http_protocol import ConnectionLimits
from moot.net.outbox import OutboxLimits
from moot.net.server_tls import TlsFiles
from moot.net.websocket_server import SocketLimits


def tls_files(tls: TlsConfig) -> TlsFiles:
    return TlsFiles(certificate=tls.certificate, key=tls.key, client_ca=tls.client_ca)


def socket_settings(config: GatewayConfig) -> SocketSettings:
    outbox = OutboxLimits(
        max_bytes=config.outbox_bytes, max_messages=config.outbox_messages, max_seconds=config.outbox_seconds
    )
    return SocketSettings(
        join_seconds=config.join_seconds,
        max_join_bytes=config.max_join_bytes,
        outbox=outbox,
        errors_per_second=config.errors_per_second,
        allow_query_token=config.allow_query_token,
    )


def socket_limits(configuration: Configuration) -> SocketLimits:
    """Above the largest message of any space, whose own limits answer first."""
    limits = [space.config.limits for space in configuration.spaces.values()]
    largest = max([max(each.envelope.max_bytes, each.max_frame_bytes) for each in limits], default=1 << 20)
    config = configuration.gateway
    return SocketLimits(
        message_bytes=largest + (64 << 10),
        message_fragments=config.max_message_fragments,
        ping_seconds=config.ping_seconds,
        ping_timeout_seconds=config.ping_timeout_seconds,
        close_seconds=config.close_seconds,
    )


def access_limits(config: GatewayConfig) -> AccessLimits:
    return AccessLimits(
        wrong_tokens_per_minute=config.wrong_tokens_per_minute,
        joins_per_second=config.joins_per_second,
        minted_tokens_per_minute=config.minted_tokens_per_minute,
    )


def connection_limits(config: GatewayConfig) -> ConnectionLimits:
    return ConnectionLimits(
        max_header_bytes=config.max_header_bytes,
        max_headers=config.max_headers,
        response_seconds=config.response_seconds,
        header_seconds=config.header_seconds,
        max_connections_per_address=config.max_connections_per_address,
        max_connections=config.max_connections,
    )


def http_settings(config: GatewayConfig) -> HttpSettings:
    http = config.http
    return HttpSettings(
        inject=http.inject,
        poll=http.poll,
        admin=http.admin and (bool(config.admin_tokens) or bool(config.oidc)),
        metrics=http.metrics,
        console=http.console,
        max_body_bytes=config.max_body_bytes,
        max_content_bytes=config.max_content_bytes,
        max_space_content_bytes=config.max_space_content_bytes,
        max_minted_token_seconds=config.max_minted_token_seconds,
        history_pages_per_second=config.history_pages_per_second,
        sign_in_links_per_minute=config.sign_in_links_per_minute,
        public_url=config.public_url,
        gateways=() if config.cluster is None else config.cluster.addresses,
        page_origins=frozenset() if config.cluster is None else config.cluster.origins,
    )


def history_limits(config: GatewayConfig) -> HistoryLimits:
    return HistoryLimits(
        max_messages=config.max_history_page_messages,
        max_bytes=config.max_history_page_bytes,
        max_scan_bytes=config.max_history_scan_bytes,
    )


def mail_settings(config: GatewayConfig) -> tuple[MailSettings | None, Password | None]:
    smtp = config.smtp
    if smtp is None:
        return None, None
    settings = MailSettings(
        host=smtp.host,
        port=smtp.port,
        sender=smtp.sender,
        starttls=smtp.starttls,
        user=smtp.user,
        timeout_seconds=smtp.timeout_seconds,
        max_invitations_per_minute=smtp.max_invitations_per_minute,
    )
    return settings, smtp.password
