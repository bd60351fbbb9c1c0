"""The addresses of a gateway: for its own machine, for others, and the names that it answers to."""

from __future__ import annotations

from moot.config.gateway_config import GatewayConfig, is_wildcard, local_hosts


class GatewayAddresses:
    """Known when the gateway listens, which may choose the ports."""

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self.port = config.port
        # Where programs on this machine need no certificate.
        self.local_port: int | None = None

    @property
    def url(self) -> str:
        host = f"[{self._config.host}]" if ":" in self._config.host else self._config.host
        return f"{self._config.scheme}://{host}:{self.port}"

    @property
    def local_url(self) -> str | None:
        """For programs on this machine, without a certificate; None where the gateway speaks plain HTTP."""
        return None if self.local_port is None else f"http://127.0.0.1:{self.local_port}"

    @property
    def machine_url(self) -> str:
        """How this machine itself reaches the gateway; nobody can open the address of a wildcard."""
        plain = f"http://127.0.0.1:{self.port}" if is_wildcard(self._config.host) else self.url
        return self.local_url or plain

    @property
    def console_url(self) -> str:
        """Where a person opens the console."""
        return self._config.public_url or self.machine_url

    @property
    def shared_url(self) -> str:
        """Where others are told to connect: never the address of a wildcard, which leads nowhere."""
        config = self._config
        named = [config.public_url, *(() if config.cluster is None else config.cluster.addresses)]
        own = self.machine_url if is_wildcard(config.host) else self.url
        return next((address.rstrip("/") for address in named if address), own)

    @property
    def own_url(self) -> str:
        """What `Gateway.open_own` connects to, by a name that is answered."""
        return f"http://{min(self.hosts)}"

    @property
    def own_origin(self) -> str:
        """An origin that is answered, and whose name is.

        Not that of the local port: other gateways call us by it, also for a moment after we were started
        anew, and that port is another one then.
        """
        hosts, origins = self._config.hosts(self.port), self._config.origins(self.port)
        pages = (each for each in sorted(origins) if each.partition("://")[2] in hosts)
        return next(pages, f"http://{min(hosts or self.hosts)}")

    @property
    def hosts(self) -> frozenset[str]:
        """The values of Host that are answered."""
        return self._config.hosts(self.port) | self._local_hosts()

    @property
    def origins(self) -> frozenset[str]:
        """The values of Origin that are answered."""
        return self._config.origins(self.port) | {f"http://{name}" for name in self._local_hosts()}

    def _local_hosts(self) -> frozenset[str]:
        return frozenset() if self.local_port is None else local_hosts(self.local_port)
