"""The `gateway.oidc` section: which provider of identities is believed, and who its people are here.

The reference page is written from this file: the comment above a field is what it says there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec

from moot.config.secrets.kept_secret import InEnvironment
from moot.protocol.patterns import Capability

Text = Annotated[str, msgspec.Meta(min_length=1)]
Texts = tuple[str, ...]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
SPIFFE: Final = "spiffe://"


class SignInRule(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `people`: whose tokens it means, and who they are here."""

    # Claim → the value that it has or contains, or several of which one is enough; `*` stands for any text.
    match: Mapping[str, tuple[str | bool, ...]]
    # A name, or one made of claims, such as "{preferred_username}".
    participant: Text
    # The spaces that they may enter.
    spaces: Texts
    # Their rights there, from `profile` and `capabilities`; None: as the spaces configure the participant.
    capabilities: tuple[Capability, ...] | None = None
    # The name of the profile, for the audit.
    profile: str | None = None
    # Whether they administer the gateway, too, as with `admin_tokens`: true, or a list of spaces alone.
    administrator: bool | Texts = False


class McpResource(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `mcp`: an MCP server of a space for many people (`moot mcp --people`)."""

    # The space that it serves.
    space: Text
    # The participant that it joins as. With its token, and no other, tokens of people are exchanged.
    server: Text
    # Its public address, such as https://moot.example.org/mcp: clients ask for tokens for it (RFC 8707).
    resource: Text
    # The audience of those tokens, where the provider has another name for it than the address.
    audience: Texts = ()
    # The scope that a token needs for anything; without one, none.
    read_scope: str | None = None
    # The scope that a token needs to call tools and to chat; without one, `read_scope` is enough.
    call_scope: str | None = None

    @property
    def audiences(self) -> Texts:
        return self.audience or (self.resource,)

    @property
    def scopes(self) -> Texts:
        """All that a client can ask for, the least first."""
        return tuple(scope for scope in (self.read_scope, self.call_scope) if scope is not None)


class IntrospectionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`introspection`: the provider is asked whether tokens in use are still good (RFC 7662)."""

    # The client with which the gateway asks; not the public one.
    client_id: Text
    # The environment variable that holds its secret. The secret itself never stands in a file.
    client_secret: InEnvironment


class OidcConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`gateway.oidc`: people and programs sign in at a provider of OpenID Connect. Several make a list."""

    # The provider, exactly as it calls itself in its tokens; or a trust domain of SPIFFE: spiffe://example.org.
    issuer: Text
    # Whom tokens are issued for: this gateway, by the name that the provider has for it. One or several.
    audience: Texts
    # The claim that says whose account it is, the same for every client: `oid` for Entra, whose `sub` is not.
    subject_claim: Text = "sub"
    # Who sees to it that somebody is let in, first match wins; whoever matches nothing is refused.
    people: tuple[SignInRule, ...]
    # The public client with which the console and `moot login` sign people in; without one they need tokens.
    client_id: str | None = None
    # What they ask the provider for.
    scopes: Texts = ("openid", "profile", "offline_access")
    # Sent as `prompt`: consent, for providers that give refresh tokens only then (OpenID Connect Core 11).
    prompt: Literal["consent", "login", "select_account"] | None = None
    # Sent as `resource` (RFC 8707) by those that sign in, for providers that decide on the audience by it.
    resource: str | None = None
    # MCP servers for many people, whose tokens this provider issues. One section, or a list of them.
    mcp: tuple[McpResource, ...] = ()
    # Asks the provider about tokens in use, for providers that can revoke them.
    introspection: IntrospectionConfig | None = None
    # The `typ` of access tokens (RFC 9068). JWT, as of Keycloak, also takes those without one, as of Okta and
    # Cognito; what looks like an ID token is refused then.
    token_types: Texts = ("at+jwt",)
    # For providers whose access tokens are no JWTs (Google): take ID tokens. Their audience is client_id.
    accept_id_tokens: bool = False
    # Rules that use `email` need `email_verified`; this believes a provider that does not send it, as Entra.
    trust_email: bool = False
    # A token that is valid for longer is refused: nobody could take it back. A day.
    max_token_seconds: Seconds = 86_400
    # Where the keys of the provider are; by default its discovery document says it.
    jwks_url: str | None = None

    @property
    def is_spiffe(self) -> bool:
        """Whether its tokens are JWT-SVIDs: `sub` names a workload of this trust domain, and `iss` nobody."""
        return self.issuer.startswith(SPIFFE)
