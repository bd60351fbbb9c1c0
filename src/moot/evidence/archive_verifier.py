"""Verifies an archive of a journal: python3 verify.py [KEY]

It needs Python 3.9 or later and nothing else. KEY is the log's public key, NAME+ID+BASE64, which you should
have from somebody else than whoever gave you the archive; without it the one in keys.txt is believed.

Each line of records.jsonl is a record of the journal. Its entry in the log is the SHA-256 of the line without
its newline and without its last member "h", if it has that one. Where about.json says "shared", as for a
cluster, it is also without the first member "n", and entry 0 is of the record whose "c" is 1. Of an erased
record, whose second member is "erased", only that hash is left, and what else such a line says is proven by
nothing. The entries are the leaves of the tree of RFC 6962, whose root is in the file checkpoint
(c2sp.org/tlog-checkpoint).
Records behind the checkpoint's size were not signed for yet.
"""

from __future__ import annotations

import base64
import hashlib
import json
import pathlib
import sys
from collections.abc import Iterator, Sequence

P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P


def add(a: Sequence[int], b: Sequence[int]) -> Sequence[int]:
    """The sum of two points of Ed25519, as (X, Y, Z, T)."""
    e = (a[1] - a[0]) * (b[1] - b[0])
    f = (a[1] + a[0]) * (b[1] + b[0])
    g, h = 2 * a[3] * b[3] * D, 2 * a[2] * b[2]
    e, f, g, h = f - e, h - g, h + g, f + e
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(number: int, point: Sequence[int]) -> Sequence[int]:
    total: Sequence[int] = (0, 1, 1, 0)
    while number:
        if number & 1:
            total = add(total, point)
        point = add(point, point)
        number >>= 1
    return total


def point_of(raw: bytes) -> Sequence[int] | None:
    """The point that 32 bytes stand for (RFC 8032), None if for none."""
    number = int.from_bytes(raw, "little")
    y, sign = number & (1 << 255) - 1, number >> 255
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if y >= P or (x * x - square) % P or (x == 0 and sign):
        return None
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P


def verifies(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether an Ed25519 signature fits (RFC 8032, 5.1.7)."""
    a, r, s = point_of(public), point_of(signature[:32]), int.from_bytes(signature[32:], "little")
    if len(signature) != 64 or a is None or r is None or s >= L:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % L
    base = point_of((4 * pow(5, P - 2, P) % P).to_bytes(32, "little")) or ()
    left, right = times(s, base), add(r, times(k, a))
    return (left[0] * right[2] - right[0] * left[2]) % P == 0 == (left[1] * right[2] - right[1] * left[2]) % P


def entry_of(line: bytes) -> bytes:
    record = json.loads(line)
    if list(record)[1:2] == ["erased"]:
        return bytes.fromhex(record["erased"])
    text = line[:-73] + b"}" if line[-73:-67] == b',"h":"' else line[:-1]
    return hashlib.sha256(b"{" + text.partition(b",")[2] if shared_in(line) else text).digest()


def shared_in(line: bytes) -> int:
    """The number of a record in all gateways of a cluster, 0 if it has none."""
    record = json.loads(line)
    found = list(record)[-3:] if "h" in record else list(record)[-2:]
    return record["c"] if found[:2] == ["c", "s"] or list(record)[1:3] == ["erased", "c"] else 0


def root_of(entries: Sequence[bytes]) -> bytes:
    """The root of RFC 6962 over entries."""
    edge: list[bytes] = []
    for size, entry in enumerate(entries):
        node = hashlib.sha256(b"\0" + entry).digest()
        while size & 1:
            node = hashlib.sha256(b"\1" + edge.pop() + node).digest()
            size >>= 1
        edge.append(node)
    node = edge.pop() if edge else hashlib.sha256().digest()
    while edge:
        node = hashlib.sha256(b"\1" + edge.pop() + node).digest()
    return node


def check(folder: pathlib.Path, key: str) -> Iterator[str]:
    """What is wrong with an archive, in words; nothing if it holds."""
    text, _, below = (folder / "checkpoint").read_text("utf-8").rpartition("\n\n")
    origin, size, root = text.split("\n")[:3]
    about = json.loads((folder / "about.json").read_text("utf-8"))
    lines = [each + b"\n" for each in (folder / "records.jsonl").read_bytes().split(b"\n")[:-1]]
    stored = (folder / "entries").read_bytes()
    entries = [stored[at : at + 32] for at in range(0, 32 * int(size), 32)]
    name, _, rest = key.partition("+")
    public = base64.b64decode(rest.partition("+")[2])[1:]
    if origin != about["origin"] or name != origin:
        yield f"the checkpoint is of {origin}, the archive of {about['origin']}, the key of {name}"
    signed = [
        base64.b64decode(line.split(" ")[2])[4:] for line in below.splitlines() if line.split(" ")[1] == name
    ]
    if not any(verifies(public, (text + "\n").encode(), each) for each in signed):
        yield "the key did not sign the checkpoint"
    if base64.b64encode(root_of(entries)).decode() != root:
        yield "the entries do not have the root that was signed"
    shared = about.get("shared", False)
    last = 0
    for number, line in enumerate(lines, about["records_from"]):
        at = shared_in(line) - 1 if shared else number - about["first"]
        if json.loads(line)["n"] != number:
            yield f"record {number} is missing or not in its place"
            return
        if at < 0 and shared:
            continue
        last = at + 1
        if at < 0:
            yield f"record {number} is older than the log"
        elif at < len(entries) and entry_of(line) != entries[at]:
            yield f"record {number} is not the one that was signed"
    if last < len(entries):
        yield f"{len(entries) - last} records at the end are missing"


def main() -> int:
    folder = pathlib.Path(__file__).resolve().parent
    key = sys.argv[1] if len(sys.argv) > 1 else (folder / "keys.txt").read_text("utf-8").split("\n")[0]
    faults = list(check(folder, key.strip()))
    sys.stdout.write("\n".join(faults or whole(folder)) + "\n")
    return 1 if faults else 0


def whole(folder: pathlib.Path) -> Iterator[str]:
    """What is in an archive that holds, and what is not."""
    about = json.loads((folder / "about.json").read_text("utf-8"))
    first, begin = about["first"], about["records_from"]
    last = first + int((folder / "checkpoint").read_text("utf-8").split("\n")[1]) - 1
    # No other line ends: an envelope may have carriage returns between its members.
    lines = (folder / "records.jsonl").read_bytes().split(b"\n")[:-1]
    if about.get("shared"):
        signed = [line for line in lines if 0 < shared_in(line + b"\n") <= last]
        yield f"{len(lines) - len(signed)} records were this gateway's own, or not signed for"
        begin, lines = shared_in(signed[0] + b"\n") if signed else last + 1, signed
    else:
        signed = lines[: max(0, last + 1 - begin)]
    erased = [json.loads(line)["n"] for line in signed if b',"erased":"' in line[:40]]
    yield f"{len(signed)} records hold, {len(erased)} of them were erased: {erased}"
    if begin > first:
        yield f"records {first} to {begin - 1} were signed for and are not in this archive"
    if len(lines) > len(signed):
        end = begin + len(lines) - 1
        yield f"records {begin + len(signed)} to {end} were not signed for: nothing vouches for them"


if __name__ == "__main__":
    sys.exit(main())
