"""Where a boxed server may connect to: its list of hosts, as rules about names and ports."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final

# What a host without a port stands for: HTTPS and HTTP.
WEB_PORTS: Final = (443, 80)


@dataclass(frozen=True, slots=True)
class HostRule:
    """One entry of the list: `*`, `*.example.org`, a name, or an address."""

    host: str
    ports: tuple[int, ...]

    def matches(self, host: str, port: int) -> bool:
        if port not in self.ports:
            return False
        if self.host == "*":
            # An address is more than a name of the public network: it is named itself or not at all.
            return not is_address(host)
        if self.host.startswith("*."):
            return host.endswith(self.host[1:]) and host != self.host[1:]
        return host == self.host

    @property
    def is_exact_name(self) -> bool:
        return "*" not in self.host and not is_address(self.host)


@dataclass(frozen=True, slots=True)
class HostRules:
    """All entries of one box."""

    rules: tuple[HostRule, ...]

    def allows(self, host: str, port: int) -> bool:
        """Whether this name or address may be connected to. Where a name leads is another question."""
        return any(rule.matches(host, port) for rule in self.rules)

    def names_address(self, address: str, port: int) -> bool:
        """Whether the list has this very address, which then may be private."""
        shown = canonical_host(address)
        return any(is_address(rule.host) and rule.matches(shown, port) for rule in self.rules)

    @property
    def exact_names(self) -> dict[str, tuple[int, ...]]:
        """Names without patterns, and their ports: those get an address of their own in the box."""
        found: dict[str, tuple[int, ...]] = {}
        for rule in self.rules:
            if rule.is_exact_name and rule.host != "localhost":
                found[rule.host] = tuple(dict.fromkeys((*found.get(rule.host, ()), *rule.ports)))
        return found


def read_rules(hosts: tuple[str, ...]) -> HostRules:
    """The rules of `network:`, whose shape was checked when it was read."""
    rules = []
    for each in hosts:
        host, port = each, ""
        if each.startswith("["):
            host, _, port = each[1:].partition("]")
            port = port.removeprefix(":")
        elif each.count(":") == 1:
            host, _, port = each.partition(":")
        rules.append(HostRule(canonical_host(host), (int(port),) if port else WEB_PORTS))
    return HostRules(tuple(rules))


def canonical_host(host: str) -> str:
    """A name or address in the one form in which it is compared."""
    host = host.strip("[]").rstrip(".").lower()
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        # `2130706433` and `0x7f.1` are addresses for a resolver of C: no name ends in a number.
        last = host.rpartition(".")[2]
        return last.isdigit() or last.startswith("0x")
    return True
