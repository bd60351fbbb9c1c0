"""A proof of one record as a COSE receipt (RFC 9942), for verifiers that know no C2SP, signed anew.

    18([<< {1: -8, 4: kid, 15: {1: origin, 2: about}, 395: 1, "checkpoint": note} >>,
        {396: {-1: [<< [size, index, [hash, …]] >>]}}, null, signature])

The payload that is signed is the root. A receipt does not sign how large the tree is, and one whose size was
changed can verify: so the whole checkpoint, with the cosignatures of witnesses, stands in what is signed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from moot.evidence.inclusion_file import InclusionFile
from moot.evidence.signed_note import SignerKey

# RFC 9052, 8392 and 9942: algorithm, key id, claims (issuer, subject), verifiable data structure, its proofs.
_ALGORITHM, _KEY_ID, _CLAIMS, _STRUCTURE, _PROOFS = 1, 4, 15, 395, 396
_ISSUER, _SUBJECT = 1, 2
_EDDSA: Final = -8
_RFC9162_SHA256: Final = 1
_INCLUSION: Final = -1
_SIGN1_TAG: Final = 18

Cbor: TypeAlias = int | bytes | str | Sequence["Cbor"] | Mapping[int | str, "Cbor"] | None


def cose_receipt(proof: InclusionFile, key: SignerKey, about: str) -> bytes:
    """The receipt of the entry of this proof, signed by the log's key; `about` is what it is issued for."""
    checkpoint = proof.checkpoint
    protected = encode_cbor(
        {
            _ALGORITHM: _EDDSA,
            _KEY_ID: key.verifier.key_id,
            _CLAIMS: {_ISSUER: checkpoint.origin, _SUBJECT: about},
            _STRUCTURE: _RFC9162_SHA256,
            "checkpoint": str(proof.note),
        }
    )
    inclusion = encode_cbor([checkpoint.size, proof.index, list(proof.proof)])
    signature = key.sign(encode_cbor(["Signature1", protected, b"", checkpoint.root]))
    unprotected: Cbor = {_PROOFS: {_INCLUSION: [inclusion]}}
    return _head(6, _SIGN1_TAG) + encode_cbor([protected, unprotected, None, signature])


def encode_cbor(value: Cbor) -> bytes:
    """The deterministic form of RFC 8949, 4.2.1, of what a receipt is made of."""
    match value:
        case None:
            return b"\xf6"
        case int():
            return _head(0, value) if value >= 0 else _head(1, -1 - value)
        case bytes():
            return _head(2, len(value)) + value
        case str():
            raw = value.encode()
            return _head(3, len(raw)) + raw
        case Mapping():
            members = sorted((encode_cbor(name), encode_cbor(each)) for name, each in value.items())
            return _head(5, len(members)) + b"".join(name + each for name, each in members)
        case _:
            return _head(4, len(value)) + b"".join(map(encode_cbor, value))


def _head(major: int, number: int) -> bytes:
    """The type of an item and its number, in as few bytes as it takes."""
    if number < 24:
        return bytes([major << 5 | number])
    for more, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if number < 1 << 8 * size:
            return bytes([major << 5 | more]) + number.to_bytes(size, "big")
    raise ValueError("no number of a receipt is so large")
