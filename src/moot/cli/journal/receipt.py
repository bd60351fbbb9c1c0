"""`moot receipt`: a document that proves who approved what, and whether one holds."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from moot.cli.client.connect_options import CONNECT_HELP, add_connect_options, connect_settings_of
from moot.cli.options.shared_options import add_json, add_policy
from moot.cli.process import program
from moot.cli.process.exit_codes import EXIT_FAILED, EXIT_OK
from moot.errors import UsageError
from moot.operations.text.terminal_escape import printable
from moot.protocol.envelope import rfc3339

if TYPE_CHECKING:
    from moot.evidence.receipt import CallClaim, Claims, Receipt
    from moot.evidence.receipt_verify import Verdict
    from moot.evidence.witness_policy import Policy

_VERIFY: Final = "verify"
_KEY: Final = "key"
_EXAMPLES: Final = """\
  moot receipt 3f1c22ab -o pay.receipt.json            of a decided proposal, or of a call
  moot receipt 3f1c22ab --show response                with what came back
  moot receipt 3f1c22ab --data /var/lib/moot           from a data folder, without a gateway
  moot receipt 3f1c22ab --data /var/lib/moot --withhold /params/arguments/iban
  moot receipt 3f1c22ab --data /var/lib/moot --cose -o pay.receipt.cose
  moot receipt verify pay.receipt.json --key moot.example/spaces/lab/log+1a2b3c4d+AQ…
  moot receipt verify pay.receipt.json --policy logs.policy
  moot receipt key --data /var/lib/moot                the public key of a log, to hand out
"""


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands,
        name,
        help="prove who approved what to somebody outside, and verify such a proof",
        about="A receipt has the records of one decided proposal, or of one call, each with the proof that "
        "it is in the signed log of the space. `verify` needs the file and a public key or a policy, and "
        "nobody's word: no gateway, no network. What came back and the configuration are withheld unless "
        "--show names them: the receipt then has their salted hashes, and they can be shown later.",
        examples=f"{_EXAMPLES}\n{CONNECT_HELP}",
    )
    add = parser.add_argument
    add("what", metavar="ID|verify|key", help="of a proposal or a call; or `verify` and a file; or `key`")
    add("file", nargs="?", metavar="FILE", help="the receipt to verify; - is the standard input")
    add("--show", action="append", default=[], metavar="ROLE", help="do not withhold records of this role")
    add("--withhold", action="append", default=[], metavar="ROLE|/FIELD",
        help="withhold records of this role, too; with --data also a field, by its JSON Pointer")  # fmt: skip
    add("-o", "--output", default="-", metavar="FILE", help="a new file (default: the standard output)")
    add("--data", type=Path, metavar="DIR", help="read this data folder instead of asking a gateway")
    add("--cose", action="store_true", help="with --data: the proof of the decision as COSE (RFC 9942)")
    verifying = parser.add_argument_group("to verify")
    verifying.add_argument("--key", help="the log's public key, NAME+ID+BASE64, or a file with it")
    add_policy(verifying)
    add_json(verifying)
    add_connect_options(parser)
    parser.set_defaults(run=_run_receipt)


@program.tells_errors
def _run_receipt(options: argparse.Namespace) -> int:
    if options.what == _VERIFY:
        return _verify(options)
    if options.what == _KEY:
        return _print_keys(options)
    if options.file is not None:
        raise UsageError("one receipt at a time; `moot receipt verify FILE` verifies one")
    return _make(options)


def _print_keys(options: argparse.Namespace) -> int:
    from moot.cli.journal.journal_folder import journal_folders
    from moot.evidence.log_files import FOLDER, LogReader
    from moot.evidence.log_keys import read_keys

    options.data = options.data or Path(".moot")
    keys = read_keys(options.data)
    if keys is None:
        raise UsageError(f"no keys in {options.data}: a gateway that keeps a log makes them when it starts")
    for journal in journal_folders(options).values():
        for key in keys.verifiers(LogReader(journal.parent / FOLDER).about.origin):
            print(printable(str(key)))
    return EXIT_OK


# Making one


def _make(options: argparse.Namespace) -> int:
    from moot.cli.process.output_file import open_new_file

    if options.cose and options.data is None:
        raise UsageError("--cose signs with the log's key: name the folder that has it with --data")
    if options.data is None and any(each.startswith("/") for each in options.withhold):
        raise UsageError("the log's key signs for withheld fields: name the folder that has it with --data")
    raw = _from_folder(options) if options.data is not None else _from_gateway(options)
    with open_new_file(options.output) as file:
        file.write(raw)
    return EXIT_OK


def _from_folder(options: argparse.Namespace) -> bytes:
    from moot.cli.journal.journal_commands import open_index
    from moot.cli.journal.journal_folder import journal_folder_of
    from moot.evidence.log_keys import read_keys
    from moot.evidence.receipt import WITHHELD, read_roles
    from moot.evidence.receipt_maker import RECEIPT_KINDS, receipt_of
    from moot.store.journal_search import whole_id

    folder = journal_folder_of(options)
    fields = [each for each in options.withhold if each.startswith("/")]
    roles = [each for each in options.withhold if each not in fields]
    withhold = (WITHHELD - read_roles(options.show)) | read_roles(roles)
    keys = read_keys(options.data)
    if fields and keys is None:
        raise UsageError(f"no keys in {options.data}: the log's key signs for fields that are withheld")
    with open_index(folder) as index:
        named = whole_id(folder, options.what, index=index, kinds=RECEIPT_KINDS)
        signer = None if keys is None else keys.signer
        made = receipt_of(folder, named, withhold, fields=fields, signer=signer, index=index)
    return _as_cose(options.data, made) if options.cose else made.as_bytes()


def _as_cose(data: Path, receipt: Receipt) -> bytes:
    """The proof of the record that decided it; says on the standard error which entry that is of."""
    from hashlib import sha256

    from moot.evidence.cose_receipt import cose_receipt
    from moot.evidence.inclusion_file import parse_inclusion_file
    from moot.evidence.log_keys import read_keys

    keys = read_keys(data)
    decided = max((each.record for each in receipt.claims.decisions), default=0)
    record = next((each for each in receipt.records if each.number == decided), None)
    if keys is None or record is None:
        raise UsageError("no decision is shown, or there is no key to sign with")
    proof = parse_inclusion_file(record.proof.encode())
    entry = record.entry or sha256(record.line.encode()).hexdigest()
    print(f"record {record.number}, whose entry is {entry}", file=sys.stderr)
    return cose_receipt(proof, keys.signer(proof.checkpoint.origin), receipt.about)


def _from_gateway(options: argparse.Namespace) -> bytes:
    from moot.cli.client.gateway_request import request_accepted

    settings = connect_settings_of(options)
    path = f"spaces/{quote(settings.space, safe='')}/receipts/{quote(options.what, safe='')}"
    params = {"show": ",".join(options.show), "withhold": ",".join(options.withhold)}
    asked = {name: value for name, value in params.items() if value}
    return request_accepted("GET", settings.url, path, settings.token.reveal(), params=asked).content


# Verifying one


def _verify(options: argparse.Namespace) -> int:
    from moot.evidence.receipt import MAX_RECEIPT_BYTES
    from moot.evidence.receipt_verify import verify_receipt

    if options.file is None:
        raise UsageError("name the receipt: `moot receipt verify FILE --key KEY`")
    policy = _policy_of(options)
    try:
        with sys.stdin.buffer if options.file == "-" else open(options.file, "rb") as file:
            raw = file.read(MAX_RECEIPT_BYTES + 1)
    except OSError as fault:
        raise UsageError(f"cannot read {options.file}: {fault.strerror}") from None
    verdict = verify_receipt(raw, policy)
    if options.json:
        print(json.dumps(_as_json(verdict), ensure_ascii=False))
    else:
        for line in _lines(verdict):
            print(printable(line))
    return EXIT_OK if verdict.ok else EXIT_FAILED


def _policy_of(options: argparse.Namespace) -> Policy:
    from moot.evidence.receipt_verify import policy_of_key
    from moot.evidence.witness_policy import parse_policy

    if (options.key is None) == (options.policy is None):
        raise UsageError(
            "say whom you believe: --key with the log's public key, or --policy with a policy file"
        )
    try:
        if options.policy is not None:
            return parse_policy(options.policy.read_bytes())
        is_file = "+" not in options.key
        return policy_of_key(Path(options.key).read_text("utf-8") if is_file else options.key)
    except OSError as fault:
        raise UsageError(f"cannot read {fault.filename}: {fault.strerror}") from None


def _as_json(verdict: Verdict) -> dict[str, Any]:
    import msgspec

    return {
        "ok": verdict.ok,
        "problems": verdict.problems,
        "log": None if verdict.checkpoint is None else verdict.checkpoint.origin,
        "size": None if verdict.checkpoint is None else verdict.checkpoint.size,
        "witnesses": {name: rfc3339(seconds) for name, seconds in verdict.witnesses.items()},
        "withheld": [{"number": each.number, "role": each.role} for each in verdict.withheld],
        "withheld_fields": {str(number): found for number, found in verdict.fields.items()},
        "claims": msgspec.to_builtins(verdict.claims) if verdict.ok else None,
    }


def _lines(verdict: Verdict) -> list[str]:
    receipt, claims, checkpoint = verdict.receipt, verdict.claims, verdict.checkpoint
    if verdict.problems or receipt is None or claims is None or checkpoint is None:
        return ["This receipt does not hold:", *(f"  {each}" for each in verdict.problems)]
    saw = ", ".join(f"{name} at {rfc3339(seconds)}" for name, seconds in verdict.witnesses.items())
    seen = f", seen by {saw or 'no witness'}"
    first = f"This receipt holds: {len(receipt.records)} records of {checkpoint.origin}, "
    return [f"{first}which had {checkpoint.size} when it was signed{seen}.", *_story(receipt, claims),
            *(f"Withheld: record {each.number}, which is said to be the {each.role} ({each.entry[:16]}…)."
              for each in verdict.withheld),
            *(f"Withheld of record {number}: {', '.join(found)}; the log's key signed for the rest."
              for number, found in verdict.fields.items())]  # fmt: skip


def _story(receipt: Receipt, claims: Claims) -> list[str]:
    lines = [f"{receipt.about} is {claims.state}, as far as the records that are shown say."]
    if claims.proposed is not None:
        lines.append(f"{claims.proposed.at}  {claims.proposed.by} proposed {_call(claims.proposed)}")
    for origins in claims.origins:
        found = ", ".join(f"{path}: {origin}" for path, origin in origins.arguments.items())
        lines.append(f"{origins.at}  {origins.by} found where values came from: {found or 'nothing'}")
    if claims.changed is not None:
        lines.append(f"{claims.changed.at}  {claims.changed.by} changed it to {_call(claims.changed)}")
    for each in claims.decisions:
        by = f"  rule {each.rule} of {each.by}" if each.rule else f"  {each.by}"
        key = f", with passkey {each.passkey.credential} of {each.passkey.rp_id}" if each.passkey else ""
        lines.append(f"{each.at}{by} {each.how}{f': {each.reason}' if each.reason else ''}{key}")
    if claims.ran is not None:
        lines.append(f"{claims.ran.at}  {', '.join(claims.ran.to)} was asked: {_call(claims.ran)}")
    lines += [
        f"{each.at}  {each.by} answered: {each.outcome} (sha256 {each.sha256})" for each in claims.answers
    ]
    lines += [
        f"  {each.by} gave {each.to} the right: {json.dumps(each.capabilities)}" for each in claims.grants
    ]
    lines += [f"  {each.by} let {each.to} decide in their place" for each in claims.delegations]
    lines += [f"  {each.by} had signed in at {each.issuer} as {each.subject}" for each in claims.identities]
    lines += [f"  rule {each.name}, told by {each.by} (sha256 {each.sha256})" for each in claims.rules]
    if claims.configuration is not None:
        lines.append(f"  the configuration was {claims.configuration.sha256}")
    return lines


def _call(call: CallClaim) -> str:
    text = call.canonical or f"{call.method} with numbers that only its record has"
    hashed = call.sha256 or call.fingerprint
    return f"{text if len(text) <= 300 else text[:299] + '…'} ({f'sha256 {hashed}' if hashed else 'in part'})"
