"""An HTTP request of a command, with a bound for the answer: to one address, or to the first that answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from moot.errors import Refused, Unreachable, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx2

    from moot.protocol.operation import Json

_TIMEOUT_SECONDS = 10
# What a gateway or a provider tells a command has some KiB; the status of a large cluster has more.
MAX_BYTES: Final = 4 << 20


def request_bounded(method: str, url: str, *, seconds: float, **more: Any) -> httpx2.Response:
    """The whole answer; raises Unreachable for a larger one, and httpx2.HTTPError as httpx2 does."""
    import httpx2

    # Packed, a small answer can be a large one.
    headers = {"Accept-Encoding": "identity", **more.pop("headers", {})}
    body = bytearray()
    with httpx2.stream(method, url, timeout=seconds, headers=headers, **more) as answer:
        for piece in answer.iter_raw():
            body += piece
            if len(body) > MAX_BYTES:
                where = url.partition("?")[0]
                raise Unreachable(f"{where} answers with more than {MAX_BYTES >> 20} MiB. Check the address")
    kind = {"content-type": answer.headers.get("content-type", "")}
    return httpx2.Response(answer.status_code, headers=kind, content=bytes(body))


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
    is_repeatable: bool = False,
    **more: Any,
) -> tuple[str, httpx2.Response]:
    """The address that answered, and its answer. Raises Unreachable when none does, NotAdmitted for 401.

    Only if a gateway was not reached, or has refused as unavailable, is the next one asked: nothing is asked
    for twice, unless it `is_repeatable`. `body` makes what is sent as JSON from the address that it is sent
    to.
    """
    import httpx2

    from moot.net.connect_errors import UpgradeRefused, explain_failed_request, explain_not_admitted
    from moot.net.outbound import verification_for

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
        except (httpx2.HTTPError, Unreachable) as fault:
            explained = fault if isinstance(fault, Unreachable) else explain_failed_request(base[:-1], fault)
            if not is_repeatable and not isinstance(fault, httpx2.ConnectError | httpx2.ConnectTimeout):
                raise explained from None
            missed.append(str(explained))
            continue
        if answer.status_code == 401:
            raise explain_not_admitted(base, UpgradeRefused(401, answer.content), token)
        is_missed = answer.status_code >= 500 if is_repeatable else answer.status_code == 503
        if not is_missed or (number == len(bases) and not is_repeatable):
            return base, answer
        missed.append(f"the gateway at {base} is not available: {_why(base, answer)}")
    raise Unreachable("\n".join(missed))


def request_accepted(method: str, given: str, path: str, token: str, **more: Any) -> httpx2.Response:
    """The answer, as `request_gateway`; raises Refused with the gateway's words where it refuses."""
    base, answer = request_gateway(method, given, path, token, **more)
    if answer.status_code not in (200, 201):
        raise Refused(_why(base, answer))
    return answer


def request_json(method: str, given: str, path: str, token: str, **more: Any) -> dict[str, Any]:
    """What a gateway answers; raises what `request_accepted` raises, and Unreachable where none is."""
    found = _object_in(request_accepted(method, given, path, token, **more))
    if found is None:
        raise Unreachable(f"{given} answers without JSON, so it is no gateway of ours. Check the address")
    return found


def _why(base: str, answer: httpx2.Response) -> str:
    """The gateway's words for a refusal."""
    told = _object_in(answer) or {}
    return str(told.get("message") or told.get("error") or f"{base} replied with HTTP {answer.status_code}")


def _object_in(answer: httpx2.Response) -> dict[str, Any] | None:
    try:
        found = answer.json()
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
