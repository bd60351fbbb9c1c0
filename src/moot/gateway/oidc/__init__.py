"""People and programs that sign in at a provider of OpenID Connect."""
