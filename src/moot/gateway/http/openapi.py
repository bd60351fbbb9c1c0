"""The description of the HTTP interface of a gateway: `openapi.yaml`, without what is turned off."""

from __future__ import annotations

from functools import cache
from importlib import resources

import yaml

from moot.config.gateway_config import HttpConfig
from moot.protocol.operation import Json

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def openapi(version: str, offered: HttpConfig) -> Json:
    """OpenAPI 3.1 of what this gateway answers, and of nothing that is turned off."""
    document = _everything()
    paths = dict(document["paths"])
    messages = paths["/participants/{id}/messages"] = dict(paths["/participants/{id}/messages"])
    if not offered.poll:
        del messages["get"], paths["/spaces/{space}/history"]
    if not offered.inject:
        del messages["post"]
    hidden = [path for path in paths if path.startswith("/admin/") and not offered.admin]
    hidden += [] if offered.metrics else ["/metrics"]
    hidden += [] if offered.console else ["/console/{path}", "/service-worker.js", "/manifest.webmanifest"]
    hidden += [] if messages else ["/participants/{id}/messages"]
    for path in hidden:
        del paths[path]
    return document | {"info": document["info"] | {"version": version}, "paths": paths}


@cache
def _everything() -> Json:
    """The file as it is; nobody changes what is returned here."""
    text = (resources.files("moot.gateway.http") / "openapi.yaml").read_text("utf-8")
    document = yaml.load(text, _LOADER)  # noqa: S506  # it is the safe one
    # Only a place for what is named more than once.
    del document["pieces"]
    return document
