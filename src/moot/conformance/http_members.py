"""Members of a story that have no socket, and only post over HTTP."""

from __future__ import annotations

import msgspec
import orjson

from moot.conformance.blocking_client import GatewayAddress
from moot.conformance.runner import NotJudged, ReceivedMessages
from moot.protocol.close_codes import REMOVED
from moot.protocol.operation import Json


class HttpMember(msgspec.Struct, frozen=True):
    """A member that only posts over HTTP."""

    who: str
    token: str
    dialect: str

    @property
    def path(self) -> str:
        return f"/participants/{self.who}/messages"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


class HttpMembers:
    """Those of one space, by their names in the story."""

    def __init__(self, address: GatewayAddress, space: str | None) -> None:
        self._address = address
        self._space = space
        self._members: dict[str, HttpMember] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def admit(self, name: str, member: HttpMember) -> bool:
        """Whether its token opens the space; then it is one of them."""
        if not self._is_admitted(member):
            return False
        self._members[name] = member
        return True

    def remove(self, name: str) -> bool:
        """Whether it was one of them."""
        return self._members.pop(name, None) is not None

    def removals(self) -> ReceivedMessages:
        """What each has heard since: a post has no socket that could be closed, so when its member is removed
        its token stops working."""
        heard: ReceivedMessages = {}
        for name, member in list(self._members.items()):
            heard[name] = []
            if not self._is_admitted(member):
                del self._members[name]
                heard[name].append({"closed": REMOVED, "reason": "the token opens nothing any more"})
        return heard

    def post(self, name: str, text: str) -> tuple[dict[str, Json], Json]:
        """The answer to a post, and the error that it tells, as a member with a socket would hear it."""
        member, data = self._members[name], text.encode("utf-8", "surrogatepass")
        headers = member.headers | {"Content-Type": "application/json"}
        query = self._query(member)
        status, raw = self._address.fetch("POST", member.path, query=query, headers=headers, body=data)
        try:
            body = orjson.loads(raw)
        except orjson.JSONDecodeError:
            body = None
        if not isinstance(body, dict):
            raise NotJudged(f"this gateway answers POST {member.path} with {status} and no JSON object")
        if status < 400 or "error" not in body:
            return body, None
        error: dict[str, Json] = {"kind": "system/error", "payload": body}
        sent = read_message(data)
        if "id" in sent:
            # The answer to a post is its HTTP response: it can be about nothing else.
            error["correlation_id"] = [sent["id"]]
        return body, error

    def _is_admitted(self, member: HttpMember) -> bool:
        query = self._query(member)
        status, _ = self._address.fetch("GET", member.path, query=query, headers=member.headers)
        if status not in (200, 401, 403):
            raise NotJudged(f"this gateway answers GET {member.path} with {status}")
        return status == 200

    def _query(self, member: HttpMember) -> dict[str, str]:
        query = {"dialect": member.dialect}
        return query if self._space is None else query | {"space": self._space}


def read_message(data: bytes) -> Json:
    """A message of the wire as the judge sees it: JSON, a frame, or what cannot be read."""
    if data.startswith(b"#"):
        return {"frame": data.decode("utf-8", "replace")}
    try:
        message = orjson.loads(data)
    except orjson.JSONDecodeError:
        message = None
    return message if isinstance(message, dict) else {"unreadable": data.decode("utf-8", "replace")}
