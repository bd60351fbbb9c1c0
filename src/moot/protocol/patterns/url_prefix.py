"""Addresses below a prefix, as one regular expression: the whole site, or a folder of it.

A prefix is a scheme, a whole host with its port, and a path that ends in `/`. A glob cannot say that: a
server or a client may read `%2e%2e`, a backslash or a tab in an address as something else, and leave the
folder by it. So what follows the prefix is made of plain characters only. Addresses that are written
otherwise do not match, which means that somebody is asked. The console has the same in
`views/capabilities/url-prefix.js`, and a test compares the two.
"""

from __future__ import annotations

import re
from typing import Final

# Not `..`, since a dot is followed by something else; not %25, %2e, %2f, %5c, controls or overlong UTF-8.
_PATH: Final = (
    r"(?:\.?(?:[A-Za-z0-9_~!$&'()*+,;=:@/-]|%(?:2[0-46-9A-Da-d]|[346][0-9A-Fa-f]|5[0-9ABDEFabdef]"
    r"|7[0-9A-Ea-e]|[89ABDEFabdef][0-9A-Fa-f]|[Cc][2-9A-Fa-f])))*\.?"
)
# A query or a fragment: visible ASCII without the backslash.
_QUERY: Final = r"(?:[?#][!-\[\]-~]*)?"
_FOLDER_END: Final = f"{_PATH}{_QUERY}$/"
# The site itself may be written without its slash.
_SITE_END: Final = f"(?:/{_PATH})?{_QUERY}$/"
_SITE: Final = r"[a-z][a-z0-9+.-]*://(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?"
_ADDRESS: Final = re.compile(rf"({_SITE})(/{_PATH})?{_QUERY}", re.ASCII)
_PREFIX: Final = re.compile(rf"({_SITE})(/{_PATH})", re.ASCII)
_SPECIAL: Final = re.compile(r"[.$()*+\[\]]")


def is_address(text: str) -> bool:
    """Whether it has a scheme and an authority, however it is written."""
    return re.match(r"\s*[A-Za-z][A-Za-z0-9+.-]*:[/\\]{2}", text) is not None


def url_prefixes(address: str) -> tuple[str, ...]:
    """Its folder and its site, the narrowest first; none if the address is not written plainly."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        return ()
    site, path = f"{found[1]}/", found[2] or "/"
    folder = f"{found[1]}{path[: path.rindex('/') + 1]}"
    return (site,) if folder == site else (folder, site)


def url_prefix_pattern(prefix: str) -> str | None:
    """The pattern for everything below a prefix; None if it is none."""
    found = _PREFIX.fullmatch(prefix)
    if found is None or not prefix.endswith("/"):
        return None
    if found[2] == "/":
        return f"/^{_escape(found[1])}{_SITE_END}"
    return f"/^{_escape(prefix)}{_FOLDER_END}"


def url_prefix_of(pattern: str) -> str | None:
    """The prefix that a pattern was made from; None for any other pattern."""
    for end, slash in ((_SITE_END, "/"), (_FOLDER_END, "")):
        if pattern.startswith("/^") and pattern.endswith(end):
            prefix = re.sub(r"\\(.)", r"\1", pattern[2 : -len(end)]) + slash
            if url_prefix_pattern(prefix) == pattern:
                return prefix
    return None


def _escape(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"\\{found[0]}", text)
