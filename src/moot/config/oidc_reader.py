"""Reading `gateway.oidc`: strictly, since everything in it decides who gets in."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from moot.config.configuration import SpaceSettings
from moot.config.gateway_config import is_loopback
from moot.config.oidc_config import IntrospectionConfig, McpResource, OidcConfig, SignInRule
from moot.config.profiles import Profiles, rights_of
from moot.config.secrets.kept_secret import read_with_secrets
from moot.config.section_reader import at, check_keys, checked, mapping, read_struct, strings
from moot.errors import Refused, UsageError
from moot.protocol.operation import Json
from moot.space.members.member_names import logical_name

_RULE_KEYS: Final = ("match", "participant", "spaces", "profile", "capabilities", "notation", "administrator")
# RFC 6749, 3.3: without what would end the word in a header.
_TRUST_DOMAIN: Final = re.compile(r"spiffe://[a-z0-9._-]{1,255}")
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,128}")
# A variable, and the setting that names it → what the variable holds; raises UsageError.
SecretOf = Callable[[Json, str], str]
_CLAIM: Final = re.compile(r"\{([A-Za-z0-9_.:/-]{1,128})\}")


def read_oidc(
    value: Json,
    path: str,
    profiles: Profiles,
    spaces: Mapping[str, SpaceSettings],
    secret_of: SecretOf,
) -> tuple[OidcConfig, ...]:
    """One provider, or a list of several; raises UsageError."""
    if value is None:
        return ()
    sections = value if isinstance(value, list) else [value]
    found = []
    for index, section in enumerate(sections):
        place = path if section is value else f"{path}[{index}]"
        found.append(_read_provider(section, place, profiles, spaces, secret_of))
    issuers = [each.issuer for each in found]
    if len(set(issuers)) < len(issuers):
        raise UsageError(f"{path}: an issuer is listed twice")
    _check_same_resources(found, path)
    return tuple(found)


def _check_same_resources(providers: Sequence[OidcConfig], path: str) -> None:
    """An MCP server tells its clients one address and one pair of scopes, whatever their provider."""
    seen: dict[tuple[str, str], McpResource] = {}
    for entry in (entry for provider in providers for entry in provider.mcp):
        first = seen.setdefault((entry.space, entry.server), entry)
        if msgspec.structs.replace(entry, audience=first.audience) != first:
            raise UsageError(
                f"{path}: {entry.server} of {entry.space} has another resource or other scopes in two"
                " entries of mcp; its clients are told of one"
            )


def _read_provider(
    value: Json, path: str, profiles: Profiles, spaces: Mapping[str, SpaceSettings], secret_of: SecretOf
) -> OidcConfig:
    section = mapping(value, path)
    readers = {
        "audience": _one_or_several,
        "token_types": _one_or_several,
        "mcp": lambda entries, place: _read_resources(entries, place, spaces),
        "introspection": lambda asked, place: _read_introspection(asked, place, secret_of),
        "people": lambda rules, place: _read_rules(rules, place, profiles, spaces),
    }
    config = read_struct(OidcConfig, section, path, readers)
    if config.is_spiffe:
        _check_trust_domain(config, path)
    else:
        _check_url(config.issuer, at(path, "issuer"))
    if config.jwks_url is not None:
        _check_url(config.jwks_url, at(path, "jwks_url"))
    for index, each in enumerate(config.mcp):
        if set(each.audiences) & set(config.audience):
            raise UsageError(
                f"{path}.mcp[{index}]: its audience is the gateway's own, so tokens of MCP clients would be"
                " taken everywhere and with all rights; let the provider issue them for another one"
            )
    return config


def _check_trust_domain(config: OidcConfig, path: str) -> None:
    """SPIFFE-ID 2.1; there is nothing to be found out at such an address."""
    if _TRUST_DOMAIN.fullmatch(config.issuer) is None:
        raise UsageError(f"{path}.issuer: a trust domain is spiffe:// and a name in lower case, nothing else")
    if config.jwks_url is None:
        raise UsageError(f"{path}.jwks_url: is missing: where the keys of {config.issuer} are")
    for name in ("client_id", "introspection"):
        if getattr(config, name) is not None:
            raise UsageError(f"{path}.{name}: nobody signs in at a trust domain of SPIFFE")


def _read_introspection(value: Json, path: str, secret_of: SecretOf) -> IntrospectionConfig | None:
    if value is None:
        return None
    return read_with_secrets(IntrospectionConfig, value, path, variable=secret_of)


def _read_resources(value: Json, path: str, spaces: Mapping[str, SpaceSettings]) -> tuple[McpResource, ...]:
    found: list[McpResource] = []
    for index, section in enumerate(value if isinstance(value, list) else [value]):
        place = f"{path}[{index}]" if isinstance(value, list) else path
        entry = read_struct(McpResource, section, place, {"audience": _one_or_several})
        if entry.space not in spaces:
            raise UsageError(f"{place}.space: there is no space {entry.space}; known are {', '.join(spaces)}")
        if entry.server not in spaces[entry.space].config.participants:
            raise UsageError(f"{place}.server: {entry.space} has no participant {entry.server}")
        _check_url(entry.resource, f"{place}.resource")
        if urlsplit(entry.resource).query or entry.resource.endswith("/"):
            raise UsageError(f"{place}.resource: has no query, and no slash at its end")
        for name in ("read_scope", "call_scope"):
            scope = getattr(entry, name)
            if scope is not None and _SCOPE.fullmatch(scope) is None:
                raise UsageError(f"{place}.{name}: a scope is one word, such as moot:call")
        if entry.call_scope is not None and entry.read_scope is None:
            raise UsageError(f"{place}.read_scope: is missing, so nobody could be asked for call_scope")
        if any(other.resource == entry.resource for other in found):
            raise UsageError(f"{place}.resource: is listed twice")
        found.append(entry)
    return tuple(found)


def _check_url(url: str, path: str) -> None:
    """https, or this machine itself: whoever changes the keys on the way is everybody."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise UsageError(f"{path}: is no address") from None
    if parts.scheme not in ("http", "https") or not host or parts.fragment or parts.username:
        raise UsageError(f"{path}: must be an address, such as https://id.example.org/realms/team")
    if parts.scheme == "http" and not is_loopback(host):
        raise UsageError(f"{path}: must begin with https://, or whoever is on the path decides who gets in")


def _one_or_several(value: Json, path: str) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else strings(value, path)
    if not texts or not all(texts):
        raise UsageError(f"{path}: must be text, or a list of texts")
    return tuple(texts)


def _read_rules(
    value: Json, path: str, profiles: Profiles, spaces: Mapping[str, SpaceSettings]
) -> tuple[SignInRule, ...]:
    rules = checked(value, list, "a list of rules", path)
    if not rules:
        raise UsageError(f"{path}: has no rule, so nobody could sign in")
    return tuple(_read_rule(rule, f"{path}[{index}]", profiles, spaces) for index, rule in enumerate(rules))


def _read_rule(value: Json, path: str, profiles: Profiles, spaces: Mapping[str, SpaceSettings]) -> SignInRule:
    section = mapping(value, path)
    check_keys(section, _RULE_KEYS, path)
    for key in ("match", "participant", "spaces"):
        if key not in section:
            raise UsageError(f"{path}.{key}: is missing")
    match = {
        claim: _patterns(wanted, at(f"{path}.match", claim))
        for claim, wanted in mapping(section["match"], f"{path}.match").items()
    }
    if not match:
        raise UsageError(f'{path}.match: is empty; `sub: "*"` means everybody whom the provider knows')
    participant: str = checked(section["participant"], str, "text", f"{path}.participant")
    capabilities = rights_of(section, path, profiles)
    named = _one_or_several(section["spaces"], f"{path}.spaces")
    _check_spaces(named, f"{path}.spaces", spaces)
    _check_participant(participant, capabilities is not None, path, named, spaces)
    profile = section.get("profile")
    administers = section.get("administrator", False)
    if not isinstance(administers, bool):
        administers = _one_or_several(administers, f"{path}.administrator")
        _check_spaces(administers, f"{path}.administrator", spaces)
    return SignInRule(
        match=match,
        participant=participant,
        spaces=named,
        capabilities=capabilities,
        profile=profile,
        administrator=administers,
    )


def _check_spaces(named: Collection[str], path: str, spaces: Mapping[str, SpaceSettings]) -> None:
    for name in named:
        if name not in spaces:
            raise UsageError(f"{path}: there is no space {name}; known are {', '.join(spaces)}")


def _check_participant(
    name: str, has_rights: bool, path: str, named: Collection[str], spaces: Mapping[str, SpaceSettings]
) -> None:
    is_made_of_claims = "{" in name or "}" in name
    if is_made_of_claims:
        if not _CLAIM.search(name) or "{" in _CLAIM.sub("", name) or "}" in _CLAIM.sub("", name):
            raise UsageError(f"{path}.participant: claims stand in braces, as in {{preferred_username}}")
        if not has_rights:
            raise UsageError(
                f"{path}.profile: is missing: a name that the provider decides on needs rights of its own, or"
                " whoever calls themselves like a participant would be that one"
            )
        return
    try:
        logical_name(name)
    except Refused as fault:
        raise UsageError(f"{path}.participant: {fault.message}") from None
    for space in named:
        is_configured = name in spaces[space].config.participants
        if has_rights and is_configured:
            raise UsageError(
                f"{path}.participant: {name} is a participant of {space}, whose rights stand there;"
                " leave profile and capabilities out"
            )
        if not has_rights and not is_configured:
            raise UsageError(
                f"{path}.participant: {space} has no participant {name}; name one, or give a profile"
            )


def _patterns(value: Json, path: str) -> tuple[str | bool, ...]:
    wanted = value if isinstance(value, list) else [value]
    for each in wanted:
        if not isinstance(each, str | bool) or each == "":
            raise UsageError(f"{path}: must be text, true or false, or a list of them")
    if not wanted:
        raise UsageError(f"{path}: is empty, so nobody could match")
    return tuple(wanted)


def claims_in(template: str) -> list[str]:
    """The claims that a name is made of."""
    return _CLAIM.findall(template)


def fill_claims(template: str, values: Mapping[str, str]) -> str:
    """The template with the values of its claims."""
    return _CLAIM.sub(lambda found: values[found[1]], template)


def without_people(oidc: tuple[OidcConfig, ...]) -> tuple[OidcConfig, ...]:
    """What needs a restart when it changes: everything but the rules."""
    return tuple(msgspec.structs.replace(each, people=()) for each in oidc)
