"""What a running adapter answers at its control socket: how it stands, and what its operator tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moot.adapter.operations.control_socket import Handler
from moot.errors import Unreachable, UsageError
from moot.protocol.operation import Json

if TYPE_CHECKING:
    from moot.adapter.adapter import Adapter


def control_handlers(adapter: Adapter) -> dict[str, Handler]:
    """By their names; each raises MootError, whose text is the answer."""

    async def status(_params: dict[str, Json]) -> dict[str, Json]:
        _check_up(adapter)
        return adapter.status()

    async def reload(_params: dict[str, Json]) -> dict[str, Json]:
        _check_up(adapter)
        found = await adapter.reload_file()
        return {} if found is None else found.summary()

    async def accept(params: dict[str, Json]) -> dict[str, Json]:
        _check_up(adapter)
        source, names = params.get("source"), params.get("names") or None
        if not isinstance(source, str) or not (names is None or isinstance(names, list)):
            raise UsageError("accept takes the name of a source, and a list of names or nothing")
        return {"accepted": list(adapter.accept(source, names))}

    return {"status": status, "reload": reload, "accept": accept}


def _check_up(adapter: Adapter) -> None:
    if not adapter.is_up:
        raise Unreachable("the adapter is still starting: ask again in a moment")
