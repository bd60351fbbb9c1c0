"""One HTTP request to a gateway, or to the first of several that answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moot.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx2

    from moot.protocol.operation import Json

_TIMEOUT_SECONDS = 10


def base_urls(given: str) -> list[str]:
    """The addresses of gateways, separated by commas, each with a slash behind it; ws:// is http:// there."""
    urls = [each for url in given.split(",") if (each := url.strip())]
    return [f"{f'http{url[2:]}' if url.startswith('ws') else url}".rstrip("/") + "/" for url in urls]


def request_gateway(
    method: str,
    given: str,
    path: str,
    token: str,
    *,
    body: Callable[[str], Json] | None = None,
    **more: Any,
) -> tuple[str, httpx2.Response]:
    """The address that answered, and its answer. Raises UsageError when none does.

    Only if a gateway was not reached, or has refused as unavailable, is the next one asked: nothing is asked
    for twice. `body` makes what is sent as JSON from the address that it is sent to.
    """
    import httpx2

    from moot.net.client_tls import verification_for

    headers = {"Authorization": f"Bearer {token}"}
    missed: list[str] = []
    bases = base_urls(given)
    for number, base in enumerate(bases, 1):
        sent = more if body is None else more | {"json": body(base)}
        try:
            answer = httpx2.request(
                method,
                f"{base}{path}",
                headers=headers,
                timeout=_TIMEOUT_SECONDS,
                verify=verification_for(base),
                **sent,
            )
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as fault:
            missed.append(f"no gateway answers at {base} ({type(fault).__name__}); is it running?")
            continue
        except httpx2.HTTPError as fault:
            raise UsageError(f"the gateway at {base} did not answer ({type(fault).__name__})") from None
        if answer.status_code != 503 or number == len(bases):
            return base, answer
        missed.append(f"the gateway at {base} is not available")
    raise UsageError("\n".join(missed))
