"""Single fields of a receipt's records are withheld, and the rest of it holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest

from moot.errors import InvalidRequest, UsageError
from moot.evidence.receipt import receipt_schema
from moot.evidence.receipt_verify import verify_receipt
from moot.evidence.withheld_fields import commitment
from tests.authenticator import SoftwareAuthenticator
from tests.evidence.receipts import PAY, POLICY, Journal, decided_journal, signed_journal

TO = "/params/arguments/to"
AMOUNT = "/params/arguments/amount"


def paying(iban: str = "CH93 0076 2011") -> Journal:
    """A payment with digits that no float keeps, said with spaces as its sender wrote them."""
    journal = Journal()
    pay = {
        "method": "tools/call",
        "params": {"name": "pay", "arguments": {"iban": iban, "a~/b": [1, {"x": 2}]}},
    }
    journal.say("agent", "mcp/proposal", pay, id="p1")
    journal.say("ana", "mcp/request", {"jsonrpc": "2.0", "id": 1} | pay, id="r1", about=["p1"])
    journal.say("host", "mcp/response", {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}, about=["r1"])
    journal.lines[0] = journal.lines[0].replace(b'"arguments":{', b'"arguments" : { ')
    return journal


def test_a_field_is_withheld_everywhere_and_the_call_that_ran_is_still_the_one_proposed() -> None:
    receipt = decided_journal().receipt(withhold=(), fields=[TO])
    text = receipt.as_bytes().decode()
    verdict = verify_receipt(receipt.as_bytes(), POLICY)
    assert verdict.problems == []
    assert "é" not in text
    assert verdict.fields == {6: [f"/raw/payload{TO}", "/s"], 9: [f"/raw/payload{TO}", "/s"]}
    assert receipt.claims.proposed
    assert receipt.claims.ran
    shown = json.loads(receipt.claims.proposed.canonical)["params"]["arguments"]
    assert shown["amount"] == 1.5
    assert shown["to"].keys() == {"withheld"}
    assert receipt.claims.proposed.canonical == receipt.claims.ran.canonical
    # The plain hashes of the whole call would let anybody try values.
    assert (receipt.claims.proposed.sha256, receipt.claims.ran.fingerprint) == ("", "")
    jsonschema_rs.validator_for(receipt_schema()).validate(json.loads(text))


def test_what_was_withheld_is_revealed_by_a_later_receipt_with_the_same_entries() -> None:
    journal = paying()
    first, second, whole = (
        journal.receipt(fields=fields) for fields in (["/params/arguments"], ["/params/arguments/iban"], [])
    )
    for each in (first, second, whole):
        assert verify_receipt(each.as_bytes(), POLICY).problems == []
    assert '"x":2' in second.records[0].line
    assert [each.entry for each in first.records] == [each.entry for each in second.records]
    line = whole.records[0].line
    assert '"arguments" : { "iban":"CH93 0076 2011"' in line
    # Who has the whole line can make the commitment again, and fill it in: byte by byte the same line.
    made = commitment(json.loads(line)["s"], "/params/arguments/iban", '"CH93 0076 2011"')
    withheld = second.records[0].line
    assert f'"iban":{{"withheld":"{made}"}}' in withheld
    filled = withheld.replace(f'{{"withheld":"{made}"}}', '"CH93 0076 2011"')
    assert filled.partition(',"s":')[0] == line.partition(',"s":')[0]
    assert first.records[1].line != second.records[1].line


def test_names_with_a_slash_or_a_tilde_and_entries_of_lists_are_found() -> None:
    receipt = paying().receipt(fields=["/params/arguments/a~0~1b/1/x"])
    assert verify_receipt(receipt.as_bytes(), POLICY).problems == []
    assert '"a~/b":[1,{"x":{"withheld":"' in receipt.records[0].line.replace(" ", "")


def test_a_short_value_cannot_be_guessed_from_salts_that_are_shown() -> None:
    """The lines' salts would let anybody try amounts until the entry or the commitment fits."""
    text = decided_journal().receipt(withhold=(), fields=[AMOUNT]).as_bytes().decode()
    for number in (6, 9):
        assert f"salt{number:018}" not in text
    assert f"salt{2:018}" in text


def test_the_passkey_of_a_vote_goes_with_the_field_because_its_challenge_is_a_hash_of_the_call() -> None:
    journal = signed_journal(SoftwareAuthenticator(b"ana's"))
    receipt = journal.receipt(fields=[AMOUNT])
    verdict = verify_receipt(receipt.as_bytes(), POLICY)
    assert verdict.problems == []
    assert "clientDataJSON" not in receipt.as_bytes().decode()
    assert set(verdict.fields[3]) == {"/made/0/payload" + AMOUNT, "/raw/payload/passkey", "/s"}
    (vote,) = receipt.claims.decisions
    assert (vote.by, vote.passkey) == ("ana", None)


def test_a_value_that_another_record_shows_is_not_called_withheld() -> None:
    journal = paying("my iban")
    journal.say("host", "mcp/response", {"result": {"content": "to my iban"}}, about=["r1"])
    with pytest.raises(InvalidRequest, match="record 4 has one of these values in another place"):
        journal.receipt(withhold=(), fields=["/params/arguments/iban"])
    assert journal.receipt(fields=["/params/arguments/iban"])


@pytest.mark.parametrize("field", ["/", "to", "/params/arguments/nothing", "/params/name/deeper", "/a\nb"])
def test_what_names_no_field_is_refused(field: str) -> None:
    with pytest.raises((UsageError, InvalidRequest), match=r"no field|no record that is shown"):
        decided_journal().receipt(fields=[field])


def _of_another_line(document: dict[str, Any]) -> None:
    records = [each for each in document["records"] if each.get("signed")]
    records[0]["signed"] = records[1]["signed"]


def _filled_in(document: dict[str, Any]) -> None:
    record = next(each for each in document["records"] if each.get("signed"))
    line = json.loads(record["line"])
    line["raw"]["payload"]["params"]["arguments"]["to"] = "é"
    record["line"] = json.dumps(line, separators=(",", ":"), ensure_ascii=False)


def _changed_elsewhere(document: dict[str, Any]) -> None:
    record = next(each for each in document["records"] if each.get("signed"))
    record["line"] = record["line"].replace("1.5", "9.5")


def _unsigned(document: dict[str, Any]) -> None:
    del next(each for each in document["records"] if each.get("signed"))["signed"]


def _other_entry(document: dict[str, Any]) -> None:
    next(each for each in document["records"] if each.get("signed"))["entry"] = "0" * 64


def _line_of_nobody(document: dict[str, Any]) -> None:
    """The entry of what is withheld under any line at all."""
    next(each for each in document["records"] if each.get("entry") and "line" not in each)["line"] = "{}"


@pytest.mark.parametrize(
    "tamper",
    [_of_another_line, _filled_in, _changed_elsewhere, _unsigned, _other_entry, _line_of_nobody],
)
def test_tampering_with_a_line_of_which_something_is_withheld_is_found(
    tamper: Callable[[dict[str, Any]], None],
) -> None:
    document = json.loads(decided_journal().receipt(fields=[TO]).as_bytes())
    assert verify_receipt(json.dumps(document).encode(), POLICY).ok
    tamper(document)
    assert verify_receipt(json.dumps(document).encode(), POLICY).problems


def test_a_call_that_is_not_the_one_proposed_is_found_though_the_difference_is_withheld() -> None:
    journal = Journal()
    other = {"method": "tools/call", "params": {"name": "pay", "arguments": {"amount": 2, "to": "é"}}}
    journal.say("agent", "mcp/proposal", PAY, id="p1")
    journal.say("ana", "mcp/request", other, id="r1", about=["p1"])
    with pytest.raises(InvalidRequest, match="is not the one in record 1"):
        journal.receipt(fields=[AMOUNT])
