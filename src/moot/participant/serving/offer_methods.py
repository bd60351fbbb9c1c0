"""Offering tools, resources and prompts: the words for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from moot.participant.serving.own_offers import OwnOffers, prompt_of, resource_of
from moot.participant.serving.request_server import CanRun, NotificationHandler, RequestHandler, RequestServer
from moot.participant.serving.tools import Tool, tool_of
from moot.protocol.operation import Json

F = TypeVar("F", bound=Callable[..., Any])


class Offers:
    """What a member can offer to others."""

    _offer: OwnOffers
    _host: RequestServer

    @overload
    def tool(self, function: F) -> F: ...

    @overload
    def tool(
        self,
        function: None = None,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: Mapping[str, Json] | None = None,
        input_schema: Mapping[str, Json] | None = None,
        output_schema: Mapping[str, Json] | None = None,
        thread: bool = False,
    ) -> Callable[[F], F]: ...

    @overload
    def tool(
        self,
        function: F,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: Mapping[str, Json] | None = None,
        input_schema: Mapping[str, Json] | None = None,
        output_schema: Mapping[str, Json] | None = None,
        thread: bool = False,
    ) -> F: ...

    def tool(
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: Mapping[str, Json] | None = None,
        input_schema: Mapping[str, Json] | None = None,
        output_schema: Mapping[str, Json] | None = None,
        thread: bool = False,
    ) -> Any:
        """Offer a function as a tool: `@space.tool`, or `@space.tool(name=…)`; gives the function back."""

        def offer(function: F) -> F:
            self._offer.add_tool(
                tool_of(
                    function,
                    name=name,
                    title=title,
                    description=description,
                    annotations=annotations,
                    input_schema=input_schema,
                    output_schema=output_schema,
                    thread=thread,
                )
            )
            return function

        return offer if function is None else offer(function)

    def add_tool(self, tool: Tool) -> None:
        self._offer.add_tool(tool)

    def remove_tool(self, name: str) -> None:
        """Offer it no longer; everybody is told."""
        self._offer.remove_tool(name)

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
    ) -> Callable[[F], F]:
        """Offer what a function reads under a URI; `{parts}` in it become its arguments."""

        def offer(function: F) -> F:
            made = resource_of(
                function, uri, name=name, title=title, description=description, mime_type=mime_type
            )
            self._offer.add_resource(made)
            return function

        return offer

    async def resource_updated(self, uri: str) -> bool:
        """Tell those who subscribed to a resource that it changed; whether anybody was told."""
        return self._offer.resource_updated(uri)

    @overload
    def prompt(self, function: F) -> F: ...

    @overload
    def prompt(
        self, function: None = None, *, name: str | None = None, description: str | None = None
    ) -> Callable[[F], F]: ...

    def prompt(
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        description: str | None = None,
    ) -> Any:
        """Offer a function that writes a prompt."""

        def offer(function: F) -> F:
            self._offer.add_prompt(prompt_of(function, name=name, description=description))
            return function

        return offer if function is None else offer(function)

    def host(
        self,
        handler: RequestHandler,
        *,
        notifications: NotificationHandler | None = None,
        can_run: CanRun | None = None,
    ) -> None:
        """Answer every request for us with this instead of what is offered here; for bridges.

        The handler's result is sent as it is; McpError becomes an error with its code, message and data; None
        gives no answer. It is called for requests that name us, and for list methods that name nobody (D-81).
        `can_run` says whether a proposal for us could ever run; one that could not is rejected at once.
        """
        self._host.handler = handler
        self._host.notifications = notifications
        self._host.can_run = can_run
