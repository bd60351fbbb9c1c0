"""The connection of one member: sockets, envelopes in and out, who is present."""
