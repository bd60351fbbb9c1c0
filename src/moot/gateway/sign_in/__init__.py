"""How people and programs get a token: providers of OpenID Connect, one-time links, tokens that end."""
