"""XProtocol from the outside: relays that events travel by, and how an endpoint is found."""
