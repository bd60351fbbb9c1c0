"""Vectors on any MEW gateway that runs somewhere, with nothing but one token that may do everything.

A vector brings its own people. Here they are invited under names that nobody has had before, play their
story, and are removed again. Names and envelope ids are made fresh throughout a vector: the space stays what
it is from one vector to the next and remembers both. What needs more than inviting (settings of the space,
other dialects, the gateway's clock) is not run, and the report says so.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any, Final

import msgspec

from moot.conformance.blocking_client import GatewayAddress, NoReply
from moot.conformance.gateway_traits import GatewayTraits
from moot.conformance.live_driver import LiveDriver
from moot.conformance.row_verdicts import VectorOutcome
from moot.conformance.runner import Failed, NotJudged, run_vector
from moot.conformance.vectors import Vector, one_joining
from moot.errors import InvalidPattern, InvalidRequest, NotAdmitted, UsageError
from moot.protocol.operation import Json
from moot.protocol.patterns import read_capability
from moot.space.members.member_names import logical_name

# Words of the protocol, not of the story: never a name, even if somebody is called so.
_PROTOCOL_FIELDS: Final = frozenset({"kind", "protocol", "method", "event", "error", "direction", "status"})
# Strings in raw text, with the colon behind those that are keys.
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?')
_CONDUCTOR: Final = "conductor"
# After so many vectors in a row without any answer the gateway is gone: each costs seconds.
_MAX_SILENT_VECTORS: Final = 3


class SetupFailed(NotJudged):
    """The people of a vector could not be brought together."""


def why_not(vector: Vector) -> str | None:
    """Why a vector cannot be run by inviting alone; None if it can."""
    if vector.needs_clock:
        return "needs the gateway's clock or disk"
    settings = sorted(set(vector.space) - {"participants"})
    if settings:
        return f"needs a space with its own {', '.join(settings)}"
    joins = vector.joining() + [one_joining(step.join) for step in vector.steps if step.join is not None]
    dialects = {str(options.get("dialect", "mew")) for _, options in joins} - {"mew"}
    if dialects:
        return f"needs members that speak {' and '.join(sorted(dialects))}"
    for entry in vector.space.get("participants", {}).values():
        if not isinstance(entry, list) and set(entry) - {"capabilities"}:
            return f"needs a participant with {', '.join(sorted(set(entry) - {'capabilities'}))}"
        try:
            _capabilities(entry)
        except (SetupFailed, InvalidPattern) as fault:
            return str(fault)
    return None


def _capabilities(entry: Json) -> list[Json]:
    """A participant's rights as an invitation names them: objects."""
    found = []
    for given in entry if isinstance(entry, list) else entry.get("capabilities", []):
        capability = read_capability(given)
        if capability.notation != "mew":
            raise SetupFailed("needs capabilities in the notation of another dialect")
        found.append({"kind": given} if isinstance(given, str) else given)
    return found


# Fresh names


def refreshed(vector: Vector, suffix: str) -> Vector:
    """The same story with other people and other ids."""
    fresh = {name: name + suffix for name in _names_in(vector) | _ids_in(vector)}
    fields = msgspec.to_builtins(vector)
    people = fields.get("space", {}).get("participants", {})
    renamed: dict[str, Json] = {
        "space": {"participants": {_who(n, fresh): _value(e, fresh) for n, e in people.items()}}
    }
    renamed["steps"] = [_with_text(_step(step, fresh)) for step in fields["steps"]]
    if "join" in fields:
        renamed["join"] = [_joining(entry, fresh) for entry in fields["join"]]
    return msgspec.convert(fields | renamed, Vector)


def _names_in(vector: Vector) -> set[str]:
    names = set(vector.space.get("participants", {}))
    sent = [step.send for step in vector.steps if step.send and step.send.get("kind") == "space/invite"]
    invited = [(envelope.get("payload") or {}).get("participant_id") for envelope in sent]
    return names | {str(name) for name in invited if _is_name(name)}


def _is_name(value: Json) -> bool:
    try:
        logical_name(value)
    except InvalidRequest:
        return False
    return True


def _ids_in(vector: Vector) -> set[str]:
    sent = {step.send["id"] for step in vector.steps if step.send and isinstance(step.send.get("id"), str)}
    raw = {id for step in vector.steps for id in re.findall(r'"id"\s*:\s*"([^"\\]+)"', step.raw or "")}
    return {id for id in sent | raw if id}


def _who(name: str, fresh: Mapping[str, str]) -> str:
    """A member's name, or `name/2` for a second connection of it."""
    first, slash, rest = name.partition("/")
    return fresh.get(first, first) + slash + rest


def _joining(entry: Json, fresh: Mapping[str, str]) -> Json:
    name, options = one_joining(entry)
    chosen = {key: _value(value, fresh) for key, value in options.items()}
    return {_who(name, fresh): chosen}


def _step(step: Mapping[str, Json], fresh: Mapping[str, str]) -> dict[str, Json]:
    renamed = dict(step)
    for key, value in step.items():
        if key in ("by", "leave"):
            renamed[key] = _who(value, fresh)
        elif key == "join":
            renamed[key] = _joining(value, fresh)
        elif key == "hear":
            renamed[key] = {_who(name, fresh): _value(received, fresh) for name, received in value.items()}
        elif key == "relayed" and isinstance(value, list):
            renamed[key] = [_who(name, fresh) for name in value]
        elif key in ("send", "payload"):
            renamed[key] = _value(value, fresh)
        elif key == "raw":
            renamed[key] = _QUOTED.sub(lambda found: _quoted(found, fresh), value)
    return renamed


def _with_text(step: dict[str, Json]) -> dict[str, Json]:
    """MEW 3.4: a chat has a text. Stories that only need something to be said leave it out."""
    sent = step.get("send")
    if not sent or sent.get("kind") != "chat":
        return step
    payload = sent.get("payload", {})
    if (
        not isinstance(payload, dict)
        or payload.get("text")
        or "'payload': '$absent'" in str(step.get("hear"))
    ):
        return step
    return step | {"send": sent | {"payload": payload | {"text": "hello"}}}


def _quoted(found: re.Match[str], fresh: Mapping[str, str]) -> str:
    return found[0] if found[2] else f'"{fresh.get(found[1], found[1])}"'


def _value(value: Json, fresh: Mapping[str, str]) -> Json:
    if isinstance(value, str):
        return fresh.get(value, value)
    if isinstance(value, list):
        return [_value(item, fresh) for item in value]
    if isinstance(value, dict):
        return {key: item if key in _PROTOCOL_FIELDS else _value(item, fresh) for key, item in value.items()}
    return value


# Running


class RemoteRunner:
    """Brings the people of a vector in and sends them away again; present only between vectors."""

    def __init__(self, address: GatewayAddress, token: str, space: str | None) -> None:
        self._address = address
        self._token = token
        self._space = space
        # Told apart from other runs, also those of the same second.
        self._run = secrets.token_hex(3)
        self._count = 0
        # What the gateway calls us.
        self._own_id = _CONDUCTOR
        self._habits = GatewayTraits()

    def check_alone(self) -> None:
        """Raises NotAdmitted when the token does not let us in, UsageError when others are in the space."""
        with closing(self._driver({_CONDUCTOR: self._token})) as driver:
            driver.learn_habits(_CONDUCTOR)
        with self._entered() as (_, welcome):
            payload = _object(welcome.get("payload"))
            own = _object(payload.get("you")).get("id")
            listed = payload.get("participants")
            ids = [_object(who).get("id") for who in listed] if isinstance(listed, list) else []
            others = [id for id in ids if id is not None and id != own]
            self._own_id = str(own)
        if others:
            raise UsageError(
                f"{', '.join(map(str, others[:5]))} {'are' if len(others) > 1 else 'is'} in this space: "
                "vectors need one where nobody else is; name it with --space"
            )

    def run(self, vector: Vector) -> None:
        """Play one vector; raises Failed with the difference, and NotJudged when it cannot end."""
        self._count += 1
        suffix = f"-{self._run}{self._count}"
        try:
            self._play(refreshed(vector, suffix), suffix)
        except (KeyError, TypeError, AttributeError, ValueError) as fault:
            # Nobody knows what another gateway sends: one odd answer must not end the whole report.
            raise NotJudged(f"what the gateway answered cannot be read: {fault!r}"[:200]) from None

    def _play(self, story: Vector, suffix: str) -> None:
        tokens, old_streams = self._invited(story.space.get("participants", {}))

        def is_stranger(id: str) -> bool:
            return id == self._own_id or (f"-{self._run}" in id and suffix not in id)

        driver = self._driver(tokens, is_stranger=is_stranger, old_streams=old_streams)
        try:
            run_vector(story, driver, foreign=driver.look_again)
        finally:
            driver.close()
            self._remove(driver.tokens)

    def _driver(self, tokens: Mapping[str, str], **story: Any) -> LiveDriver:
        return LiveDriver(
            self._address, tokens, space=self._space, traits=self._habits, completes=True, **story
        )

    @contextmanager
    def _entered(self) -> Iterator[tuple[LiveDriver, Json]]:
        driver = self._driver({_CONDUCTOR: self._token})
        try:
            received = driver.join(_CONDUCTOR, {}).get(_CONDUCTOR, [])
            welcome = next((message for message in received if message.get("kind") == "system/welcome"), None)
            if welcome is None:
                # An echo would show the token.
                why = f"{self._address.url}: {_why_unwelcome(received)}"
                raise NotAdmitted(why.replace(self._token, "…"))
            yield driver, welcome
        finally:
            driver.close()

    def _invited(self, people: Mapping[str, Json]) -> tuple[dict[str, str], list[str]]:
        """The tokens of these people, and the streams that are open before they come."""
        with self._entered() as (driver, welcome):
            listed = _object(welcome.get("payload")).get("active_streams")
            streams = (
                [str(_object(each).get("stream_id")) for each in listed] if isinstance(listed, list) else []
            )
            for name, entry in people.items():
                payload = {"participant_id": name, "initial_capabilities": _capabilities(entry)}
                invite = {"id": f"invite-{name}", "kind": "space/invite", "payload": payload}
                received = driver.send(_CONDUCTOR, invite).get(_CONDUCTOR, [])
                if name not in driver.tokens:
                    _kick(driver, (known for known in people if known in driver.tokens))
                    raise SetupFailed(f"{name} could not be invited: {_brief(received)}")
            return {name: driver.tokens[name] for name in people}, streams

    def _remove(self, names: Iterable[str]) -> None:
        with suppress(NoReply, NotAdmitted), self._entered() as (driver, _):
            _kick(driver, names)


def _kick(driver: LiveDriver, names: Iterable[str]) -> None:
    for name in names:
        payload = {"participant_id": name, "reason": "the vector is over"}
        driver.send(_CONDUCTOR, {"id": f"kick-{name}", "kind": "space/kick", "payload": payload})


def _why_unwelcome(received: list[Json]) -> str:
    refusal = next((message for message in received if "refused" in message), None)
    if refusal is None:
        return f"a join is answered with {_brief(received)}, and not with a welcome. Is this a MEW gateway?"
    code, message = str(refusal["refused"]), " ".join(str(refusal.get("message")).split())[:200]
    if code.startswith("http_"):
        return f"the gateway does not let us in: {message}. Is it a MEW gateway, and is the space right?"
    if code == "closed":
        return f"the gateway ends the connection after the join: {message[-120:]}"
    return f"the gateway does not let us in with this token: {code}, {message}"


def _object(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}


def _brief(received: list[Json]) -> str:
    return str([message.get("payload", message) for message in received])[:300]


def run_all(
    address: GatewayAddress, token: str, vectors: Iterable[tuple[str, Vector]], *, space: str | None
) -> Iterator[VectorOutcome]:
    """One outcome a vector, as they come.

    Raises UsageError, NotAdmitted or NoReply when nothing can be run at all.
    """
    runner = RemoteRunner(address, token, space)
    runner.check_alone()
    silent = 0
    for source, vector in vectors:
        reason = why_not(vector)
        if reason is None and silent >= _MAX_SILENT_VECTORS:
            reason = f"not tried: the gateway did not answer in the {silent} vectors before"
        if reason is not None:
            yield VectorOutcome(source, vector, "not runnable", reason)
            continue
        try:
            runner.run(vector)
        except Failed as difference:
            yield VectorOutcome(source, vector, "failed", str(difference), difference.rows)
        except (NotJudged, NoReply, NotAdmitted, UsageError) as fault:
            silent = silent + 1 if isinstance(fault, NoReply) else 0
            yield VectorOutcome(source, vector, "not runnable", str(fault))
            continue
        else:
            yield VectorOutcome(source, vector, "passed")
        silent = 0
