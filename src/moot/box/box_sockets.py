"""Listening sockets inside of a box's own network, made from outside.

A process of a moment enters the network of the box, listens there, and hands the sockets over; whoever holds
them answers from outside. So nothing of ours runs in the box, and no file or socket has to be shown in it.

Run as a program, with nothing but the standard library: `python -I -S box_sockets.py NETWORK_FD SOCKET_FD
ADDRESSES`, with the addresses as JSON.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import socket
import sys

# Of linux/nsfs.h and sched.h.
_NS_GET_USERNS = 0xB701
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
# Of linux/in.h: the box's loopback may not be up yet.
_IP_FREEBIND = 15


def _main() -> None:
    network, channel = int(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    addresses = [(str(host), int(port)) for host, port in json.loads(sys.argv[3])]
    users = fcntl.ioctl(network, _NS_GET_USERNS)
    libc = ctypes.CDLL(None, use_errno=True)
    for descriptor, kind in ((users, _CLONE_NEWUSER), (network, _CLONE_NEWNET)):
        if libc.setns(descriptor, kind) != 0:
            number = ctypes.get_errno()
            # Whoever owns the users of the box from the beginning is in them already.
            if kind == _CLONE_NEWNET:
                raise OSError(number, os.strerror(number))
    listening = []
    for address in addresses:
        made = socket.socket()
        made.setsockopt(socket.SOL_IP, _IP_FREEBIND, 1)
        made.bind(address)
        made.listen(64)
        listening.append(made)
    socket.send_fds(channel, [b"."], [each.fileno() for each in listening])


if __name__ == "__main__":
    _main()
