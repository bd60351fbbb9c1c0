"""A record that others can check: a Merkle tree over the journal, signed checkpoints, witnesses, proofs.

Everything here is in the formats of C2SP (c2sp.org/signed-note, tlog-checkpoint, tlog-cosignature,
tlog-tiles, tlog-proof, tlog-policy) over the tree of RFC 6962, so that programs of others verify it.

    merkle_tree     hashes of leaves and nodes, roots, proofs of inclusion and consistency
    signed_note     a text and signatures of named keys below it
    checkpoint      origin, size and root of a log as a signed note; cosignatures of witnesses
    tiles           where a tree's hashes are found over HTTP
    inclusion_file  one entry's whole proof in one text, for somebody who is offline
    witness_policy  which logs count, and how many witnesses a checkpoint needs
    witness         what a witness answers who is asked to cosign

Those are pure: no input or output, no clock, no random numbers. On disk, for one thread:

    log_keys         the keys of a gateway
    log_files        the log of one space: entries, hashes, checkpoints
    journal_entries  from records to entries
"""
