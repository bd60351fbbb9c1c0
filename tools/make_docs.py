"""The pages that are made from the code: `make docs` puts them into the site, and nothing of them is in git.

In their place docs/ has a few words each, which say where their facts stand in the code, so that links lead
somewhere on a code host, too. `python -m tools.make_docs reference/gateway` prints a page.
"""

from __future__ import annotations

import argparse
import inspect
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import redirect_stdout, suppress
from sys import argv

import msgspec

from moot import errors
from moot.cli import main as moot_command
from moot.cli.adapter import main as adapter_command
from moot.cli.command_table import COMMANDS, make_parser
from moot.cli.devserver import main as devserver_command
from moot.cli.process.program import subcommands_of
from moot.config.cluster_config import ClusterConfig
from moot.config.gateway_config import (
    GatewayConfig,
    HttpConfig,
    JournalConfig,
    LogConfig,
    McpEndpointConfig,
    SmtpConfig,
    TlsConfig,
)
from moot.config.notification_config import NotificationsConfig, PushConfig, QuietHours, ReceiverConfig
from moot.config.oidc_config import IntrospectionConfig, McpResource, OidcConfig, SignInRule
from moot.config.secrets.kept_secret import keys_of
from moot.gateway.cluster.cluster_metrics import CLUSTER_METRICS
from moot.gateway.gateway_metrics import GATEWAY_METRICS
from moot.gateway.http.http_routes import openapi
from moot.metrics import AnyDescription
from moot.protocol.close_codes import CLOSE_CODES
from moot.protocol.dialects import M3P, MCPX
from moot.protocol.dialects.mcpx import LegacyDialect
from moot.protocol.envelope import EnvelopeLimits
from moot.protocol.kinds import KINDS, OPERATION_KINDS
from moot.protocol.operation import Operation
from moot.space.config import SpaceLimits
from moot.trust.approver.approver_metrics import APPROVER_METRICS
from moot.xprotocol.adapter.config.adapter_settings import (
    AdapterLimits,
    AuditSettings,
    DiscoverySettings,
    IdentitySettings,
    LoggingSettings,
    McpServerSettings,
    RelaySection,
)
from moot.xprotocol.adapter.config.source_settings import McpSource, XProtocolSource
from moot.xprotocol.adapter.telemetry.adapter_metrics import ADAPTER_METRICS
from tools import conformance_report as report
from tools.rulings import link_rulings
from tools.sdk_reference import sdk_page
from tools.settings_comments import comments_of
from tools.shown import ROOT, shown

_NOTE = "Written by `make docs` from the code."


def kinds_page() -> str:
    lines = [
        "# Kinds",
        f"{_NOTE} Kinds that are not here pass as vendor kinds when a capability matches (D-08).",
        "",
        "| kind | MCPx | m3p | section | sent by | correlates to | executed by | passes a pause | "
        "passes a shutdown | needs the journal |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for kind in KINDS.values():
        legacy = [_spelling(dialect, kind.name) for dialect in (MCPX, M3P)]
        lines.append(
            f"| `{kind.name}` | {legacy[0]} | {legacy[1]} | {kind.section} | {kind.sender} | "
            f"{', '.join(f'`{name}`' for name in kind.answers) or '–'} | "
            f"{'members' if kind.handler == 'relay' else f'`{kind.handler}`'} | "
            f"{_yes(kind.passes_pause)} | {_yes(kind.passes_shutdown)} | {_yes(kind.audited)} |"
        )
    return "\n".join(lines) + "\n"


def _spelling(dialect: LegacyDialect, kind: str) -> str:
    if kind in OPERATION_KINDS:
        return f"`{dialect.spelling(kind, Operation('METHOD', 'CONTEXT'))}`"
    spelled = dialect.spelling(kind, Operation(None, None))
    return f"`{spelled}`" if spelled else "–"


def _yes(value: bool) -> str:
    return "yes" if value else "–"


def errors_page() -> str:
    lines = [
        "# Errors",
        f"{_NOTE} The code stands in `payload.error` of a `system/error`, beside a `message` for people.",
        "",
        "| code | class | when |",
        "|---|---|---|",
    ]
    for error in _refusals(errors.Refused):
        about = " ".join((inspect.getdoc(error) or "").split())
        lines.append(f"| `{error.code}` | `{error.__name__}` | {about} |")
    lines += [
        "| `revoke_incomplete` | – | D-18: carried out, but overlapping rights remain; they are listed. |",
        "| `unsupported_by_recipient` | – | D-56: relayed, but whom it is for speaks a dialect without it. |",
        "| `not_on_disk` | – | 0021: in effect, but the journal cannot be written: restarting undoes it. |",
    ]
    return "\n".join(lines) + "\n"


def _refusals(parent: type[errors.Refused]) -> Iterator[type[errors.Refused]]:
    for error in parent.__subclasses__():
        if error.__module__ != errors.__name__:
            # Contracts of XProtocol are refused in words of their own, never in a space.
            continue
        if not error.__subclasses__() or error is errors.InvalidRequest:
            yield error
        else:
            yield from _refusals(error)


def limits_page() -> str:
    lines = [
        "# Limits",
        f"{_NOTE} All of them stand under `limits:` of a space. Every refusal names the limit that it hit.",
        "",
        "| limit | default | why this number |",
        "|---|---|---|",
    ]
    for owner in (SpaceLimits, EnvelopeLimits):
        comments = comments_of(inspect.getsource(owner))
        defaults = owner()
        for name in owner.__struct_fields__:
            if name != "envelope":
                lines.append(f"| `{name}` | {getattr(defaults, name)} | {comments.get(name, '')} |")
    return "\n".join(lines) + "\n"


def close_codes_page() -> str:
    lines = ["# Close codes", _NOTE, "", "| code | meaning | reconnect by itself |", "|---|---|---|"]
    lines += [f"| {row.number} | {row.meaning} | {_yes(row.reconnect)} |" for row in CLOSE_CODES.values()]
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    parts = ["# Commands", _NOTE]
    for path in _paths(make_parser(COMMANDS)):
        arguments = [*path, "--help"]
        parts.append(f"## `moot {' '.join(arguments)}`\n\n```\n{_printed(arguments).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def adapter_commands_page() -> str:
    parts = ["# Commands of XProtocol", _NOTE]
    for asked in (["--help"], *([name, "--help"] for name in _adapter_commands())):
        printed = _printed(asked, adapter_command).rstrip()
        parts.append(f"## `xprotocol-adapter {' '.join(asked)}`\n\n```\n{printed}\n```")
    printed = _printed(["--help"], devserver_command).rstrip()
    parts.append(f"## `xprotocol-devserver --help`\n\n```\n{printed}\n```")
    return "\n\n".join(parts) + "\n"


def _paths(parser: argparse.ArgumentParser) -> Iterator[tuple[str, ...]]:
    """A parser, its commands, and theirs."""
    yield ()
    for name, command in subcommands_of(parser).items():
        for path in _paths(command):
            yield (name, *path)


def _adapter_commands() -> list[str]:
    """The commands in the order in which the help lists them."""
    return re.findall(r"^    ([a-z-]+)(?:  |$)", _printed(["--help"], adapter_command), re.MULTILINE)


def _printed(arguments: list[str], command: Callable[[list[str]], int] = moot_command) -> str:
    """What the command prints, at a width that does not depend on the terminal."""
    output = io.StringIO()
    formatter = argparse.HelpFormatter.__init__

    def fixed(self: argparse.HelpFormatter, prog: str, **options: object) -> None:
        formatter(self, prog, **(options | {"width": 100}))  # type: ignore[arg-type]

    argparse.HelpFormatter.__init__ = fixed  # type: ignore[method-assign,assignment]
    try:
        with redirect_stdout(output), suppress(SystemExit):
            command(arguments)
    finally:
        argparse.HelpFormatter.__init__ = formatter  # type: ignore[method-assign]
    return output.getvalue()


def gateway_page() -> str:
    sections: dict[str, type[msgspec.Struct]] = {
        "gateway": GatewayConfig,
        "gateway.journal": JournalConfig,
        "gateway.tls": TlsConfig,
        "gateway.cluster": ClusterConfig,
        "gateway.oidc": OidcConfig,
        "gateway.oidc.people": SignInRule,
        "gateway.oidc.mcp": McpResource,
        "gateway.oidc.introspection": IntrospectionConfig,
        "gateway.mcp": McpEndpointConfig,
        "gateway.smtp": SmtpConfig,
        "gateway.notifications": NotificationsConfig,
        "gateway.notifications.receivers.NAME": ReceiverConfig,
        "gateway.notifications.push": PushConfig,
        "gateway.notifications.receivers.NAME.quiet_hours": QuietHours,
        "gateway.log": LogConfig,
        "gateway.http": HttpConfig,
    }
    parts = [
        "# Gateway settings",
        f"{_NOTE} They stand under `gateway:` of a `moot.yaml`; `MOOT_GATEWAY__PORT=9000` in the environment "
        "overrides one value.",
    ]
    parts += [_settings(title, section) for title, section in sections.items()]
    return "\n\n".join(parts) + "\n"


def adapter_page() -> str:
    sections: dict[str, tuple[type[msgspec.Struct], ...]] = {
        "identity": (IdentitySettings,),
        "relay": (RelaySection,),
        "mcp_sources[]": (McpSource,),
        "xprotocol_sources[]": (XProtocolSource,),
        "mcp_server": (McpServerSettings,),
        "discovery": (DiscoverySettings,),
        "logging": (LoggingSettings,),
        "audit": (AuditSettings,),
        "limits": (AdapterLimits,),
    }
    parts = [
        "# Adapter settings",
        f"{_NOTE} They stand in the file that `xprotocol-adapter --config` names. Beside these sections "
        "there are `schema_refresh_interval_seconds` (300), `access` (key → capabilities), `trust` and "
        "`revoked` (lists of keys), `store` (a folder) and `control` (a socket).",
    ]
    parts += [_settings(title, *structs) for title, structs in sections.items()]
    return "\n\n".join(parts) + "\n"


def _settings(title: str, section: type[msgspec.Struct], *explaining: type) -> str:
    """A table of one section; `explaining` are other classes with fields of the same names."""
    comments: dict[str, str] = {}
    own = [
        each for each in section.__mro__ if issubclass(each, msgspec.Struct) and each is not msgspec.Struct
    ]
    for each in (*own, *explaining):
        found = {name: words for name, words in comments_of(inspect.getsource(each)).items() if words}
        comments = found | comments
    lines = [f"## `{title}`", "", "| setting | default | why |", "|---|---|---|"]
    for field in msgspec.structs.fields(section):
        shown = "required" if field.required else _default(field)
        why = comments.get(field.name, "").replace("|", "\\|")
        lines += [f"| `{key}` | {shown} | {why} |" for key in keys_of(field)]
    return "\n".join(lines)


def _default(field: msgspec.structs.FieldInfo) -> str:
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if isinstance(value, msgspec.Struct):
        return "see below"
    return "–" if value is None or value == {} else f"`{value}`"


def http_page() -> str:
    paths = openapi("", HttpConfig())["paths"]
    told = Counter(
        (status, answer["description"])
        for methods in paths.values()
        for about in methods.values()
        for status, answer in about["responses"].items()
    )
    usual = {each for each, count in told.items() if count >= 8}
    meanings = {
        status: [words for code, words in sorted(usual) if code == status] for status, _ in sorted(usual)
    }
    for words in meanings.values():
        words[:] = [each for each in words if not any(other.startswith(f"{each} ") for other in words)]
    parts = [
        "# HTTP",
        f"{_NOTE} A running gateway says the same at `/openapi.json`. What needs a token needs "
        "`Authorization: Bearer TOKEN`. Statuses without a word mean:",
        "\n".join(f"- {status}: {'; '.join(words)}" for status, words in meanings.items()),
    ]
    for path, methods in paths.items():
        for method, about in methods.items():
            lines = [f"## `{method.upper()} {path}`", "", about["summary"].capitalize() + "."]
            if "security" in about:
                lines[-1] += " Needs a token."
            answers = [(status, answer["description"]) for status, answer in about["responses"].items()]
            lines += [
                "",
                *(f"- {status}: {words}" for status, words in answers if (status, words) not in usual),
            ]
            if plain := [status for status, words in answers if (status, words) in usual]:
                lines.append(f"- {', '.join(sorted(plain))}")
            parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def decisions_page() -> str:
    """Every decision by its own title, under what its second line says that it is about."""
    by_subject: dict[str, list[str]] = {}
    for path in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")):
        title, _, about, *_ = path.read_text("utf-8").splitlines()
        if not about.startswith("About: "):
            raise ValueError(f"{path.name}: its third line has to be 'About: SUBJECT.'")
        subject = about.removeprefix("About: ").rstrip(".")
        words = re.sub(r"^# (\d+[.:]? )?", "", title)
        by_subject.setdefault(subject, []).append(f"- [{path.name[:4]}]({path.name}) {words}")
    parts = [
        "# Decisions",
        "Each page gives a question, the decision and its reason. [Rulings](rulings.md) say "
        "what Moot does where the protocol documents are silent or contradict each other.",
    ]
    for subject, lines in by_subject.items():
        parts += [f"## {subject[0].upper()}{subject[1:]}", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def metrics_page() -> str:
    parts = [
        "# Metrics",
        f"{_NOTE} `/metrics` gives them in Prometheus' text format; times are in seconds, sizes in bytes. "
        "How to scrape them: [run a gateway](../how-to/run-a-gateway.md#metrics).",
        _metrics_table("Gateway", GATEWAY_METRICS),
        _metrics_table("Gateway of a cluster, in addition", CLUSTER_METRICS),
        _metrics_table("XProtocol adapter", ADAPTER_METRICS),
        _metrics_table("Approver", APPROVER_METRICS),
    ]
    return "\n\n".join(parts) + "\n"


def _metrics_table(title: str, described: Iterable[AnyDescription]) -> str:
    lines = [f"## {title}", "", "| metric | type | labels | what it tells |", "|---|---|---|---|"]
    for each in described:
        labels = ", ".join(f"`{label}`" for label in each.labels) or "–"
        lines.append(f"| `{each.name}` | {each.type} | {labels} | {each.help} |")
    return "\n".join(lines)


# What the site has in the place of the few words in docs/.
PAGES: Mapping[str, Callable[[], str]] = {
    "docs/decisions/index.md": decisions_page,
    "docs/conformance.md": lambda: report.page(shown()),
    "docs/reference/kinds.md": kinds_page,
    "docs/reference/errors.md": errors_page,
    "docs/reference/limits.md": limits_page,
    "docs/reference/close-codes.md": close_codes_page,
    "docs/reference/commands.md": commands_page,
    "docs/reference/gateway.md": gateway_page,
    "docs/reference/http.md": http_page,
    "docs/reference/metrics.md": metrics_page,
    "docs/reference/adapter.md": adapter_page,
    "docs/reference/adapter-commands.md": adapter_commands_page,
    "docs/reference/sdk.md": lambda: sdk_page(_NOTE),
}


def page(name: str) -> str:
    """A page as the site has it."""
    text = PAGES[name]()
    return link_rulings(text) if name.startswith("docs/reference/") else text


def main(names: list[str]) -> None:
    print("\n".join(page(f"docs/{name}.md") for name in names))


if __name__ == "__main__":
    main(argv[1:])
