"""The approver's metrics, for `/metrics` of `moot rules run --metrics-port`. Labels are names of rules."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from moot import __version__
from moot.metrics import BUILD_INFO, CONTENT_TYPE, MetricTable, Registry, measure_build
from moot.net.http_listener import bind_socket, serve_http
from moot.trust.approver.rule_history import RuleHistory
from moot.trust.approver.rule_reviews import RuleReviews
from moot.trust.rules.rule_store import RuleStore

_TABLE: Final = MetricTable(BUILD_INFO)
DECISIONS: Final = _TABLE.counter(
    "moot_approver_decisions_total", "Proposals decided, by people and by rules.", "by"
)
AUTOMATIC: Final = _TABLE.counter("moot_rule_decisions_total", "Decisions of a rule.", "rule")
WRONG: Final = _TABLE.counter(
    "moot_rule_wrong_total",
    "How often a person contradicted a rule, by deciding otherwise or by objecting.",
    "rule",
)
TRIPPED: Final = _TABLE.counter(
    "moot_rule_tripped_total", "How often a rule was suspended, for whatever reason.", "rule"
)
PREDICTIONS: Final = _TABLE.counter(
    "moot_rule_predictions_total",
    "Predictions in observe mode, by whether people decided so.",
    "rule",
    "agrees",
)
UNREVIEWED: Final = _TABLE.gauge(
    "moot_rule_unreviewed", "Decisions of a rule that nobody has reviewed yet.", "rule"
)
SUSPENDED: Final = _TABLE.gauge("moot_rule_suspended", "1 while a rule is suspended.", "rule")
STOPPED: Final = _TABLE.gauge(
    "moot_rules_stopped", "1 while no rule decides: stopped, or the file cannot be read."
)
SUGGESTIONS: Final = _TABLE.gauge("moot_rule_suggestions", "Suggestions that wait for people.")
APPROVER_METRICS: Final = tuple(_TABLE.descriptions)


def expose_metrics(store: RuleStore, history: RuleHistory, reviews: RuleReviews) -> str:
    """All metrics in Prometheus' text format. The counts are those of the history: they survive restarts."""
    registry = Registry()
    measure_build(registry, version=__version__, is_compiled=False)
    known = {*history.rules(), *(rule.name for rule in store.all_rules)}
    for rule in sorted(known):
        AUTOMATIC.of(registry, rule=rule).value = history.total("automatic", rule)
        WRONG.of(registry, rule=rule).value = history.total("wrong", rule)
        TRIPPED.of(registry, rule=rule).value = history.total("tripped", rule)
        PREDICTIONS.of(registry, rule=rule, agrees="yes").value = history.total("agreements", rule)
        PREDICTIONS.of(registry, rule=rule, agrees="no").value = history.total("conflicts", rule)
    for each in store.all_rules:
        SUSPENDED.of(registry, rule=each.name).value = each.name in store.suspensions
        UNREVIEWED.of(registry, rule=each.name).value = len(reviews.unreviewed(each.name))
    DECISIONS.of(registry, by="people").value = history.total("people")
    DECISIONS.of(registry, by="rules").value = sum(history.total("automatic", rule) for rule in known)
    STOPPED.of(registry).value = store.stopped is not None or store.fault is not None
    SUGGESTIONS.of(registry).value = len(store.suggestions)
    return registry.exposition()


@asynccontextmanager
async def serve_metrics(read: Callable[[], str], host: str, port: int) -> AsyncIterator[int]:
    """Serve `/metrics` for the length of the block; yields the port. Raises what `bind_socket` raises."""

    async def metrics(_: Request) -> Response:
        return Response(read(), media_type=CONTENT_TYPE)

    listener = bind_socket(host, port, host_name="--metrics-host", port_name="--metrics-port")
    port_in_use: int = listener.getsockname()[1]
    application = Starlette(routes=[Route("/metrics", metrics, methods=["GET"])])
    async with serve_http(application, listener, keep_alive_seconds=15):
        yield port_in_use
