"""The process of `canaille_provider`: `python canaille_app.py PORT REDIRECT SECONDS`.

REDIRECT is where codes go back to, SECONDS how long tokens are valid. It prints "ready" when it listens.
"""

from __future__ import annotations

import sys
from urllib.parse import urlsplit

from canaille import create_app
from canaille.app import models
from canaille.backends import Backend
from flask import Flask
from joserfc.jwk import RSAKey
from werkzeug.serving import make_server


def settings(port: int, seconds: int) -> dict[str, object]:
    return {
        "SECRET_KEY": "only for tests",
        "SERVER_NAME": f"127.0.0.1:{port}",
        "PREFERRED_URL_SCHEME": "http",
        "OAUTH2_TOKEN_EXPIRES_IN": {"authorization_code": seconds, "refresh_token": seconds},
        "CANAILLE": {"DATABASE": "memory", "JAVASCRIPT": False, "HTMX": False},
        "CANAILLE_OIDC": {
            "ACTIVE_JWKS": [RSAKey.generate_key(2048, auto_kid=True).as_dict(private=True)],
            # Everybody is asked whether a client may know them, also at this machine.
            "TRUSTED_DOMAINS": [],
            # MCP clients send none.
            "REQUIRE_NONCE": False,
        },
    }


def fill(redirect: str) -> None:
    """People: ana of the staff, and bob of no group; the password of each is the name.

    Clients: the gateway, and four for people: the console, a program with a secret (only such may revoke),
    one without, and one whose tokens are not for the gateway.
    """
    save = Backend.instance.save
    people = {}
    for name in ("ana", "bob"):
        people[name] = models.User(
            user_name=name,
            given_name=name,
            family_name="Doe",
            formatted_name=name,
            display_name=name,
            emails=[f"{name}@corp.example"],
            password=name,
        )
        save(people[name])
    save(models.Group(display_name="staff", members=[people["ana"]]))
    gateway = models.Client(
        client_id="moot-gateway",
        client_name="The gateway",
        client_secret="gateway-secret",
        token_endpoint_auth_method="client_secret_basic",
    )
    save(gateway)
    where = urlsplit(redirect)
    secrets = {"console": None, "program": "program-secret", "studio": None, "elsewhere": None}
    for name, secret in secrets.items():
        client = models.Client(
            client_id=name,
            client_name=name,
            client_uri=f"{where.scheme}://{where.netloc}",
            redirect_uris=[redirect],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
            scope=["openid", "profile", "email", "address", "phone", "groups"],
            client_secret=secret,
            token_endpoint_auth_method="none" if secret is None else "client_secret_basic",
        )
        save(client)
        client.audience = [client] if name == "elsewhere" else [client, gateway]
        save(client)


def main() -> None:
    port, redirect, seconds = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    app: Flask = create_app(config=settings(port, seconds), env_file=None)
    with app.app_context():
        fill(redirect)
    server = make_server("127.0.0.1", port, app, threaded=True)
    print("ready", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
