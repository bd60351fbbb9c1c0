"""One HTTP request to a gateway, or to the first of several that answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moot.errors import Unreachable, UsageError

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
    """The address that answered, and its answer. Raises Unreachable when none does, NotAdmitted for 401.

    Only if a gateway was not reached, or has refused as unavailable, is the next one asked: nothing is asked
    for twice. `body` makes what is sent as JSON from the address that it is sent to.
    """
    import httpx2

    from moot.cli.client.bounded_request import request_bounded
    from moot.net.client_tls import verification_for
    from moot.net.connect_errors import explain_failed_request, explain_not_admitted
    from moot.net.upgrade_refused import UpgradeRefused

    headers = {"Authorization": f"Bearer {token}"}
    missed: list[str] = []
    bases = base_urls(given)
    for number, base in enumerate(bases, 1):
        sent = more if body is None else more | {"json": body(base)}
        try:
            answer = request_bounded(
                method,
                f"{base}{path}",
                headers=headers,
                seconds=_TIMEOUT_SECONDS,
                verify=verification_for(base),
                **sent,
            )
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol):
            raise UsageError(
                f"{base} is no address of a gateway; one looks like http://localhost:8080"
            ) from None
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as fault:
            missed.append(str(explain_failed_request(base, fault)))
            continue
        except httpx2.HTTPError as fault:
            raise explain_failed_request(base, fault) from None
        if answer.status_code == 401:
            raise explain_not_admitted(base, UpgradeRefused(401, answer.content), token)
        if answer.status_code != 503 or number == len(bases):
            return base, answer
        missed.append(f"the gateway at {base} is not available")
    raise Unreachable("\n".join(missed))
