"""Traces of calls by OpenTelemetry, from whoever calls to the tool and back.

    if tracing.active is not None:
        with tracing.active.operation("client", method, params) as operation:
            ...

`active` is None unless somebody asked for traces: then nothing of OpenTelemetry is loaded, and a hook costs
one comparison. What is pure (`protocol`, `space`) has no hooks. How to use it: docs/how-to/trace-calls.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from moot.errors import UsageError

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from moot.tracing.call_tracer import CallTracer

active: CallTracer | None = None

# The standard names: where to send traces, and the switch that turns all of it off.
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_WITH_CONTENT: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Whether the environment names a place to send traces to."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if environ.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower() == "none":
        return False
    return any(environ.get(name, "").strip() for name in ENDPOINTS)


def activate_from(environ: Mapping[str, str], program: str) -> None:
    """Trace this process as the environment says; does nothing if it names no place to send traces to.

    Raises UsageError where what this needs is not installed.
    """
    if not is_wanted(environ):
        return
    try:
        from moot.tracing.exporters import providers
    except ModuleNotFoundError as missing:
        named = next(name for name in ENDPOINTS if environ.get(name))
        raise UsageError(
            f"{named} is set, but {missing.name} is not installed: pip install '.[otel]'"
            " in the clone of Moot (docs/install.md, Extras), or set OTEL_SDK_DISABLED=true"
        ) from None
    activate(*providers(environ, program), with_content=environ.get(_WITH_CONTENT, "").lower() == "true")


def activate(traces: TracerProvider, metrics: MeterProvider, *, with_content: bool = False) -> None:
    """Trace the calls of this process with these providers, for programs that have their own."""
    global active
    from moot.tracing.call_tracer import CallTracer, add_ids_to_logs

    active = CallTracer(traces, metrics, with_content=with_content)
    add_ids_to_logs()


def deactivate() -> None:
    """Trace nothing any more."""
    global active
    active = None
