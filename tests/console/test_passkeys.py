"""Passkeys in Chromium's virtual authenticator: add one, sign in from a link, approve with it, remove it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import CDPSession, Page, expect

from moot.space.config import Name
from moot.space.tokens.passkey_proof import decision_challenge
from tests.authenticator import verify_again
from tests.console.approvals_page import SETTLED, detail, propose, shown
from tests.console.conftest import MemberAs, NewPage, sign_in
from tests.console.gateway_and_members import Loop, Running, spaces


@pytest.fixture
def gateway(tmp_path: Path, loop: Loop, origin_port: int) -> Iterator[Running]:
    """The same space, where calls of `add` are approved with a passkey."""
    lab = spaces()
    lab["lab"] |= {"passkeys": {"required": [{"tool": "add"}]}}
    running = Running(tmp_path, loop, lab, port=origin_port)
    yield running
    running.stop()


def authenticator(page: Page) -> tuple[CDPSession, str]:
    """One that is built in, keeps its keys, and checks who its user is."""
    cdp = page.context.new_cdp_session(page)
    cdp.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2",
        "transport": "internal",
        "hasResidentKey": True,
        "hasUserVerification": True,
        "isUserVerified": True,
        "automaticPresenceSimulation": True,
    }
    made = cdp.send("WebAuthn.addVirtualAuthenticator", {"options": options})
    return cdp, made["authenticatorId"]


def at_localhost(gateway: Running, path: str = "") -> str:
    return re.sub(r"//127\.0\.0\.1:", "//localhost:", gateway.url) + f"/{path}"


def open_passkeys(page: Page) -> Any:
    page.locator(".menu-holder > button").first.click()
    page.get_by_role("menuitem", name="Passkeys…").click()
    return page.get_by_role("dialog", name="Passkeys")


def press_vote(page: Page) -> None:
    """Both presses, with the mouse."""
    detail(page).get_by_role("button", name=re.compile("^Vote")).click()
    page.wait_for_timeout(SETTLED)
    detail(page).get_by_role("button", name=re.compile("^Yes, ")).click()


def test_a_passkey_from_the_first_one_to_an_approval(
    gateway: Running, new_page: NewPage, member: MemberAs
) -> None:
    member("files")
    agent = member("agent")
    page = new_page(alone=True)
    cdp, id = authenticator(page)
    page.goto(at_localhost(gateway, "#/lab/approvals"))
    sign_in(page, "t-human")
    dialog = open_passkeys(page)
    expect(dialog).to_contain_text("You have none yet")
    dialog.get_by_label("Name of this device").fill("Laptop")
    dialog.get_by_role("button", name="Add a passkey").click()
    expect(dialog.get_by_role("listitem")).to_contain_text("Laptop")
    page.keyboard.press("Escape")
    (kept,) = cdp.send("WebAuthn.getCredentials", {"authenticatorId": id})["credentials"]
    assert (kept["isResidentCredential"], kept["rpId"]) == (True, "localhost")

    # Another day, from a notification: the address of the proposal, and nobody is signed in.
    proposal = propose(agent, "add", a=1)
    page.evaluate("sessionStorage.clear()")
    page.goto("about:blank")
    page.goto(at_localhost(gateway, f"#/lab/approvals/{proposal.id}"))
    # The passkey is asked for by itself, since it was used in this browser before.
    shown(page, "add")
    expect(detail(page)).to_contain_text("passkey")
    cdp.send("WebAuthn.setUserVerified", {"authenticatorId": id, "isUserVerified": False})
    press_vote(page)
    expect(page.get_by_text("No passkey was used").first).to_be_visible()
    cdp.send("WebAuthn.setUserVerified", {"authenticatorId": id, "isUserVerified": True})
    page.wait_for_timeout(SETTLED)
    press_vote(page)
    expect(detail(page).get_by_role("region", name="History")).to_contain_text("approved it")

    # What stands in the history is enough for another library to check it.
    state = gateway.gateway.directory.hosts["lab"].space.state
    headers = {"Authorization": "Bearer t-second"}
    history = httpx.get(f"{gateway.url}/spaces/lab/history", headers=headers).json()["messages"]
    (vote,) = [each for each in history if each["kind"] == "moot/approve"]
    given = vote["payload"]["passkey"]
    record = state.ledger.proposals[proposal.id]
    challenge = decision_challenge(
        "lab", record, Name("human"), "approve", nonce=given["nonce"], expires=given["expires"]
    )
    (key,) = state.passkeys.of(Name("human"))
    verify_again(key.public_key, given, challenge)

    dialog = open_passkeys(page)
    dialog.get_by_role("button", name="Remove").click()
    # It signed this very page in.
    expect(dialog).to_contain_text("Sign in again")
    expect(page.locator(".top .pill")).not_to_have_text("Live")
