"""From the configuration of a gateway to the settings of its parts."""

from __future__ import annotations

from moot.config.configuration import Configuration
from moot.config.gateway_config import TlsConfig
from moot.net.server_tls import TlsFiles


def tls_files(tls: TlsConfig) -> TlsFiles:
    return TlsFiles(certificate=tls.certificate, key=tls.key, client_ca=tls.client_ca)


def max_message_bytes(configuration: Configuration) -> int:
    """Above the largest message of any space, whose own limits answer first."""
    limits = [space.config.limits for space in configuration.spaces.values()]
    largest = max([max(each.envelope.max_bytes, each.max_frame_bytes) for each in limits], default=1 << 20)
    return largest + (64 << 10)
