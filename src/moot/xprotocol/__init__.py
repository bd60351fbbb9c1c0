"""XProtocol without a socket, pure: events, contracts, translation, grammars, search. Told the time."""
