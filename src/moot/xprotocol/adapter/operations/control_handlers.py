"""The requests that a running adapter answers at its control socket: status, reload, accept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from moot.errors import Unreachable, UsageError
from moot.protocol.operation import Json
from moot.xprotocol.adapter.config.config_changes import ConfigChanges
from moot.xprotocol.adapter.operations.control_socket import Handler


def control_handlers(
    *,
    is_up: Callable[[], bool],
    status: Callable[[], dict[str, Json]],
    reload: Callable[[], Awaitable[ConfigChanges | None]],
    accept: Callable[[str, list[str] | None], list[str]],
) -> dict[str, Handler]:
    """Handlers by name. Each may raise MootError, whose text is the answer; until `is_up` all do."""

    async def handle_status(_params: dict[str, Json]) -> dict[str, Json]:
        return status()

    async def handle_reload(_params: dict[str, Json]) -> dict[str, Json]:
        changes = await reload()
        return {} if changes is None else changes.summary()

    async def handle_accept(params: dict[str, Json]) -> dict[str, Json]:
        source, names = params.get("source"), params.get("names") or None
        if not isinstance(source, str) or not (names is None or isinstance(names, list)):
            raise UsageError("accept takes the name of a source, and a list of names or nothing")
        return {"accepted": list(accept(source, names))}

    def once_up(handler: Handler) -> Handler:
        async def handle(params: dict[str, Json]) -> dict[str, Json]:
            if not is_up():
                raise Unreachable("the adapter is still starting: try again in a moment")
            return await handler(params)

        return handle

    handlers: dict[str, Handler] = {
        "status": handle_status,
        "reload": handle_reload,
        "accept": handle_accept,
    }
    return {name: once_up(handler) for name, handler in handlers.items()}
