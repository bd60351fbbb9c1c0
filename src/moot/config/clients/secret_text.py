"""Which text of a client's file may be a secret. A mistake in one direction publishes a key, one in the other
puts a harmless word into a private file; so whatever may be one is taken for one.
"""

from __future__ import annotations

import re

_WORDS = r"key|token|secret|passw|pwd|auth|credential|cookie|session|bearer|signature|private|jwt|dsn|pat"
_PREFIXES = (
    r"sk-|pk-|rk-|sk_|pk_|rk_|gh[pousr]_|github_pat_|glpat-|xox[a-z]-|npm_|pypi-|hf_|lin_|ntn_|nvapi-|gsk_"
    r"|tvly-|fc-|AIza|AKIA|ASIA|SG\.|ya29\.|eyJ"
)
_NAMED = re.compile(rf"(?:^|[^a-z])[a-z]*(?:{_WORDS})", re.IGNORECASE)
_NAMED_SHORT = re.compile(
    r"-[HupP]|--?(?:header|headers|conn\w*|connection[-_]string|database[-_]url)", re.ASCII
)
# `--token-file x`, `--key-env X`: where it is, not what it is.
_PLACE_OF_ONE = re.compile(r"(?:file|path|dir|folder|env|var|name|type|mode|method)$", re.IGNORECASE)
_SHAPES = re.compile(
    rf"""
      \b(?:bearer|basic|token)\s+\S                              # an Authorization header
    | ://[^/?\#\s]*@                                             # a user and password in a URL
    | [?&\#;][^=&\s]*(?:{_WORDS}|sig|code|access|id)[^=&\s]*=.   # … or in its query
    | (?:^|[^a-z])[a-z_-]*(?:{_WORDS})[a-z_-]*["']?\s*[=:]\s*[^\s=:]
    | \b(?:{_PREFIXES})[-_.A-Za-z0-9]{{8,}}                      # keys that say whose they are
    | -----BEGIN
    """,
    re.IGNORECASE | re.VERBOSE,
)
# Long, and with digits among the letters: no word, no package and no path looks like that.
_RANDOM = re.compile(r"(?=[A-Za-z_-]*[0-9])(?=[0-9_-]*[A-Za-z])[A-Za-z0-9_+=-]{20,}", re.ASCII)


def names_secret(name: str) -> bool:
    """Whether an option, a header or a variable of this name may hold a secret."""
    if _PLACE_OF_ONE.search(name):
        return False
    return _NAMED.search(name) is not None or _NAMED_SHORT.fullmatch(name) is not None


def looks_secret(text: str) -> bool:
    """Whether a text may hold a secret, whatever it is called."""
    return _SHAPES.search(text) is not None or _RANDOM.search(text) is not None
