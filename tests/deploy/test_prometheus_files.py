"""Alerts and dashboard ask for metrics that exist; `make alert-rules` has Prometheus try the alerts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml
from tools.make_docs import page

_ROOT = Path(__file__).resolve().parents[2]
_FILES = _ROOT / "deploy" / "prometheus"
_NAME = re.compile(r"\b(?:moot|process)_\w+")


def known() -> dict[str, set[str]]:
    """The metrics of the reference, which is written from the code, with their labels."""
    rows = re.findall(r"^\| `(\w+)` \| \w+ \| ([^|]*) \|", page("docs/reference/metrics.md"), re.M)
    return {name: set(re.findall(r"`(\w+)`", labels)) | {"le", "instance"} for name, labels in rows}


def expressions() -> list[str]:
    rules = yaml.safe_load((_FILES / "moot-rules.yaml").read_text())
    dashboard = json.loads((_FILES / "moot-dashboard.json").read_text())
    of_rules = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    return [*of_rules, *(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])]


def test_alerts_and_dashboard_ask_for_metrics_and_labels_that_exist() -> None:
    metrics = known()
    for expression in expressions():
        named = [name.removesuffix("_bucket") for name in _NAME.findall(expression)]
        assert named, expression
        labels = {word for by in re.findall(r"by \(([^)]*)\)", expression) for word in by.split(", ")}
        labels |= set(re.findall(r"[{,](\w+)[!=]", expression))
        for name in named:
            assert name in metrics, expression
            assert labels <= metrics[name], expression


def test_every_alert_is_tried_by_the_file_that_tries_them() -> None:
    rules = yaml.safe_load((_FILES / "moot-rules.yaml").read_text())
    tried = (_FILES / "moot-rules-test.yaml").read_text()
    for rule in rules["groups"][0]["rules"]:
        assert f'alertname="{rule["alert"]}"' in tried
