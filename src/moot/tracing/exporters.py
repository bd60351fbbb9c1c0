"""Where traces and histograms are sent: OTLP over HTTP, all by OpenTelemetry's standard variables."""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from moot import __version__

# How long a command that ends may still send what it has; a collector that is away must not hold it up.
LAST_SECONDS: Final = 2.0


def providers(environ: Mapping[str, str], program: str) -> tuple[TracerProvider, MeterProvider]:
    """Providers for this process; what is not sent yet is sent at its end."""
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win; sampler, headers, time-outs are read by the SDK.
    resource = Resource.create({"service.version": __version__})
    if resource.attributes.get("service.name", "unknown_service").__str__().startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": program}))
    traces = TracerProvider(resource=resource, shutdown_on_exit=False)
    spans = BatchSpanProcessor(OTLPSpanExporter())
    traces.add_span_processor(spans)
    readers = []
    if environ.get("OTEL_METRICS_EXPORTER", "otlp").strip().lower() != "none":
        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
    meters = MeterProvider(metric_readers=readers, resource=resource, shutdown_on_exit=False)

    def end() -> None:
        # The SDK's own shutdown waits for 30 seconds.
        spans._batch_processor.shutdown(timeout_millis=int(LAST_SECONDS * 1000))
        meters.shutdown(timeout_millis=LAST_SECONDS * 1000)

    atexit.register(end)
    return traces, meters
