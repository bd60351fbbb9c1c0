"""HTTP beside the sockets: all routes of a gateway, and the console."""
