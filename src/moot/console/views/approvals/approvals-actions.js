/**
 * The possible decisions about the shown proposal. States:
 *
 *     ready ──approve, reject, vote, withdraw──▶ armed ──the same again──▶ sending ──▶ ready, with a message about the outcome
 *       ├─────reject with words, grant──(a dialog)───────────────────────▶ sending
 *       └─────any of them, if the person chose time to take it back──▶ held ──time is over──▶ sending
 *
 * Armed ends after a timeout, by Escape, when another proposal is shown, and when somebody else decides first.
 */
import { capitalize, confirmationRow, decideRow, offerOf, settleButtons } from "./approvals-buttons.js";
import { button, html, replace } from "../../core/page/dom.js";
import { hasRejected, hasVoted, votesMissingFor, voteText } from "../../core/state/proposal-life.js";
import { oneLine, escapeHidden } from "../../core/page/text.js";
import { originCautions } from "../proposals/proposal-origins.js";
import { toneOf } from "../proposals/proposal-sentence.js";
import { isAllowed, callPermissions } from "../capabilities/capability-match.js";
import {
  aboutProposal,
  approve,
  approveAgain,
  approveAndGrant,
  settledText,
  reject,
  reviewedProposal,
  titleOf,
  vote,
  obstacleText,
  withdraw,
} from "../proposals/proposal-decisions.js";
import { SETTLE_MILLISECONDS, rejectDialog, summaryOf } from "./approvals-dialogs.js";
import { changeDialog, mayChange } from "./changed-call.js";
import { giverFor } from "./delegation.js";
import { grantDialog } from "../capabilities/grant-dialog.js";
import { offersTask, taskDialog } from "./task-approval.js";
import { hold, secondsLeft, takeBack, takeBackSeconds } from "./take-back.js";
import { icon } from "../parts/icons.js";

/** @typedef {import("../../core/state/state-proposals.js").Proposal} Proposal */
/** @typedef {import("../proposals/proposal-decisions.js").Outcome} Outcome */

/** @typedef {"approve" | "again" | "reject" | "vote" | "withdraw"} Confirmed what takes two presses */

/** @type {Confirmed[]} */
const RUNS = ["approve", "again", "vote"];
const DONE = /** @type {Record<string, string>} */ ({
  Approving: "approved",
  "Approving and granting": "approved",
  Rejecting: "rejected",
  Voting: "voted for",
});
// What a rejection without words says (MEW 3.3.3).
const PLAIN_NO = "disagree";
// Long enough to read it again; after that it takes two presses again.
const ARMED_MILLISECONDS = 8_000;

export class ApprovalActions {
  /** @param {import("../../app.js").Context} context @param {() => void} next @param {(id: string) => void} advance after a decision about this one */
  constructor(context, next, advance) {
    this._context = context;
    this._next = next;
    this._advance = advance;
    /** @type {Proposal | null} */
    this._proposal = null;
    /** @type {import("../proposals/proposal-decisions.js").ReviewedProposal | null} */
    this._shown = null;
    this._isPartlyHidden = () => false;
    this._guardedUntil = 0;
    /** @type {{for: Confirmed, at: number, text: string, act: (shown: import("../proposals/proposal-decisions.js").ReviewedProposal) => Promise<Outcome>} | null} */
    this._armed = null;
    /** @type {any} */
    this._timer = undefined;
    /** @type {Map<string, string>} what is being sent about which */
    this._sending = new Map();
    /** @type {Map<string, Outcome>} */
    this._outcomes = new Map();
    this._host = "";
    /** Whether a narrow page shows all ways to say yes. */
    this.isUnfolded = false;
    this._drawnFor = "";
    this.node = html.div({
      class: "approvals-actions",
      role: "group",
      "aria-label": "Decide",
      // A key that is held down repeats the click: that is not a decision.
      on: {
        keydown: (/** @type {KeyboardEvent} */ event) =>
          event.repeat && (event.key === "Enter" || event.key === " ") && event.preventDefault(),
      },
    });
  }

  /** @param {Proposal | null} proposal @param {() => boolean} unread whether part of it is not shown @param {boolean} chosen */
  show(proposal, unread, chosen) {
    this.disarm();
    this._proposal = proposal;
    this._shown = proposal ? reviewedProposal(proposal, this._context.state) : null;
    this._isPartlyHidden = unread;
    this._host = "";
    this.isUnfolded = false;
    this._guardedUntil = chosen ? 0 : performance.now() + SETTLE_MILLISECONDS;
    this._drawnFor = "";
    this.draw();
  }

  get isArmed() {
    return this._armed !== null;
  }

  draw() {
    const proposal = this._proposal;
    this.node.hidden = !proposal;
    if (!proposal) return;
    if (this.isArmed && proposal.status !== "pending") this.disarm();
    const { state } = this._context;
    const isOwn = proposal.from === state.me.id;
    const able = this._able(proposal);
    const hosts =
      proposal.to.length === 0
        ? state.roster
            .present()
            .filter((each) => each.id !== state.me.id)
            .map((each) => each.id)
            .join("\n")
        : "";
    const outcome = this._outcomes.get(proposal.id);
    const now = JSON.stringify([
      proposal.id,
      proposal.status,
      this._armed?.for,
      this._sending.get(proposal.id),
      outcome?.message,
      able,
      hosts,
      this._host,
      proposal.status === "pending" ? "" : settledText(proposal, state.me.id),
      state.proposals.toDecide(state.me.id).length > 0,
      voteText(proposal),
      originCautions(proposal),
      offerOf(this._context, proposal)?.text,
      this.isArmed && this._isPartlyHidden(),
      secondsLeft(this._context, proposal.id),
    ]);
    if (now === this._drawnFor) return;
    this._drawnFor = now;
    const hadFocus = this.node.contains(document.activeElement);
    // A settled proposal shows its state; that a permission was granted with it would not be visible.
    const word =
      outcome &&
      (outcome.status !== "done" || outcome.granted || proposal.status === "pending") &&
      html.p(
        {
          class: ["outcome", outcome.status === "done" ? "good" : "bad"],
          role: outcome.status === "done" ? null : "alert",
        },
        icon(outcome.status === "done" ? "check" : "warning", 16),
        html.span({}, outcome.message),
      );
    replace(this.node, word, this._buttons(proposal, isOwn, able));
    if (hadFocus)
      /** @type {HTMLElement | null} */ (
        this.node.querySelector("[data-first]:not(:disabled)") ?? this.node.querySelector("button:not(:disabled)")
      )?.focus();
  }

  /** @param {Proposal} proposal @param {boolean} isOwn @param {Record<string, boolean>} able */
  _buttons(proposal, isOwn, able) {
    const { state } = this._context;
    const sending = this._sending.get(proposal.id);
    if (sending) return html.p({ class: "soft", role: "status" }, `${sending}…`);
    if (proposal.status === "unknown") return settleButtons(this._context, proposal);
    if (proposal.status !== "pending") {
      return html.div(
        { class: "action-row" },
        html.p({ class: "settled-text" }, escapeHidden(capitalize(settledText(proposal, state.me.id)))),
        state.proposals.toDecide(state.me.id).length > 0 &&
          button("Next pending", this._next, { class: "small", data: { first: "true" } }),
      );
    }
    const seconds = secondsLeft(this._context, proposal.id);
    if (seconds > 0)
      return html.div(
        { class: "action-row" },
        html.p({ class: "grow soft" }, `Decided. It is sent in ${seconds} s, unless you close this page.`),
        button("Undo", () => takeBack(proposal.id), { class: "primary", shortcut: "z", data: { first: "true" } }),
      );
    if (this._armed) return this._confirmation(proposal, this._armed.for);
    if (isOwn)
      return html.div(
        { class: "action-row" },
        html.p({ class: "soft grow" }, "This is your own proposal; others decide."),
        button("Withdraw", () => this.withdraw(), {
          class: "danger",
          shortcut: "w",
          disabled: !able.withdraw,
          data: { first: "true" },
        }),
      );
    return decideRow(this._context, proposal, this, able);
  }

  /** @param {Proposal} proposal @param {Confirmed} what */
  _confirmation(proposal, what) {
    return confirmationRow(this._context, proposal, what, {
      hosts: this._hosts(),
      isPartlyHidden: this._isPartlyHidden,
      cancel: () => this.disarm(),
      hold: this._isHeld(what) ? () => this._confirmHeld(what) : null,
      act: {
        approve: () => this.approve(false),
        again: () => this.approveAgain(false),
        reject: () => this.rejectPlainly(),
        vote: () => this.vote(),
        withdraw: () => this.withdraw(),
      }[what],
    });
  }

  /** What this person may decide, for themselves or in somebody's place. @param {Proposal} proposal */
  _able(proposal) {
    const { state } = this._context;
    const rights = this._rights();
    const mayRequest = rights !== "no" || giverFor(state, proposal, "mcp/request") !== "";
    const mayVote = isAllowed(state, "moot/approve") || giverFor(state, proposal, "moot/approve") !== "";
    return {
      approve: votesMissingFor(proposal, state.me.id) > 0 ? mayVote && !hasVoted(proposal, state.me.id) : mayRequest,
      vote: mayVote && !hasVoted(proposal, state.me.id),
      reject:
        !hasRejected(proposal, state.me.id) &&
        (isAllowed(state, "mcp/reject", {}, [proposal.from]) || giverFor(state, proposal, "mcp/reject") !== ""),
      grant: rights !== "no" && isAllowed(state, "capability/grant", { recipient: proposal.from }, [proposal.from]),
      withdraw: isAllowed(state, "mcp/withdraw"),
    };
  }

  /** For a proposal that names no host. @param {string} host */
  choose(host) {
    this._host = host;
    this.disarm();
    this.draw();
  }

  get chosenHost() {
    return this._host;
  }

  /** @returns {string[]} */
  _hosts() {
    if (!this._proposal) return [];
    return this._proposal.to.length > 0 ? this._proposal.to : this._host ? [this._host] : [];
  }

  /** What a press is about, if it counts; shows the reason if not. @param {boolean} [own] whether it is for whoever proposed it */
  _pressed(own = false) {
    const [proposal, shown] = [this._proposal, this._shown];
    if (!proposal || !shown || this._sending.has(proposal.id) || secondsLeft(this._context, proposal.id) > 0)
      return null;
    const late = obstacleText(this._context, shown);
    if (late) this._context.notify(aboutProposal(proposal, escapeHidden(late)), "bad");
    const counts = !late && performance.now() >= this._guardedUntil;
    return counts && (proposal.from === this._context.state.me.id) === own ? { proposal, shown } : null;
  }

  /** Arm, or confirm when armed. @param {boolean} repeated by a key that is held down */
  approve(repeated) {
    const pressed = repeated ? null : this._pressed();
    if (!pressed || !this._able(pressed.proposal).approve) return;
    const host = this._host;
    this._confirmThenRun("approve", "Approving", (shown) => approve(this._context, shown, host));
  }

  /** The same with the very same call from now on. @param {boolean} repeated by a key that is held down */
  approveAgain(repeated) {
    const pressed = repeated ? null : this._pressed();
    const offer = pressed && offerOf(this._context, pressed.proposal);
    if (!offer || this._rights() === "no") return;
    const host = this._host;
    this._confirmThenRun("again", "Approving", (shown) => approveAgain(this._context, shown, offer, host));
  }

  /** Whether we may make the call ourselves. */
  _rights() {
    const { state } = this._context;
    if (!this._proposal || this._hosts().length === 0) return "no";
    return callPermissions(state.me.capabilities, state, this._hosts(), this._proposal.call).request;
  }

  /**
   * The first press arms, the second confirms; with time to take it back, one press is enough.
   * @param {Confirmed} what @param {string} text @param {(shown: import("../proposals/proposal-decisions.js").ReviewedProposal) => Promise<Outcome>} act
   */
  _confirmThenRun(what, text, act) {
    if (this._isHeld(what) && this._armed?.for === what) {
      // Its button counts only when it is held; so does its key.
      /** @type {any} */ (this.node.querySelector(".button.hold"))?.holdUntilKeyUp();
    } else if (takeBackSeconds() > 0 && what !== "withdraw" && !this._isHeld(what)) {
      this.disarm();
      void this._decide(text, act);
    } else if (this._armed?.for !== what) {
      this.disarm();
      this._armed = { for: what, at: performance.now(), text, act };
      this._timer = setTimeout(() => this.disarm(), ARMED_MILLISECONDS);
      this._outcomes.delete(/** @type {Proposal} */ (this._proposal).id);
      this.draw();
    } else if (performance.now() - this._armed.at >= SETTLE_MILLISECONDS) {
      this.disarm();
      void this._decide(text, act);
    }
  }

  /** What carries out a call with red hints takes a held press. @param {Confirmed} what */
  _isHeld(what) {
    return RUNS.includes(what) && this._proposal !== null && toneOf(this._proposal) === "bad";
  }

  /** The held press is over. @param {Confirmed} what */
  _confirmHeld(what) {
    if (this._armed?.for !== what || !this._pressed()) return;
    const { text, act } = this._armed;
    this.disarm();
    void this._decide(text, act);
  }

  /** @returns {boolean} whether it was armed */
  disarm() {
    const was = this.isArmed;
    this._armed = null;
    clearTimeout(this._timer);
    if (was) this.draw();
    return was;
  }

  /** No, without words. */
  rejectPlainly() {
    const pressed = this._pressed();
    if (!pressed || !this._able(pressed.proposal).reject) return;
    this._confirmThenRun("reject", "Rejecting", async (shown) => {
      const outcome = await reject(this._context, shown, PLAIN_NO, "");
      return outcome.status === "done" ? { ...outcome, message: "Rejected without a reason" } : outcome;
    });
  }

  reject() {
    const pressed = this._pressed();
    if (!pressed || !this._able(pressed.proposal).reject) return;
    this.disarm();
    rejectDialog(
      this._context,
      [pressed.shown],
      [summaryOf(pressed.proposal)],
      (reason, explanation) =>
        void this._decide("Rejecting", (shown) => reject(this._context, shown, reason, explanation)),
    );
  }

  grant() {
    const pressed = this._pressed();
    if (!pressed || this._hosts().length === 0) return;
    this.disarm();
    const host = this._host;
    const unread =
      this._isPartlyHidden() && html.p({ class: "caution" }, icon("warning", 16), "Part of the call is still hidden.");
    grantDialog(
      this._context,
      pressed.proposal,
      pressed.shown,
      summaryOf(pressed.proposal, unread),
      (capability, term) =>
        void this._decide("Approving and granting", (shown) =>
          approveAndGrant(this._context, shown, capability, term, host),
        ),
    );
  }

  /** It runs as somebody changes it here. */
  change() {
    const pressed = this._pressed();
    if (!pressed || !mayChange(this._context, pressed.proposal)) return;
    this.disarm();
    changeDialog(this._context, pressed.proposal, pressed.shown, (act) => void this._decide("Approving", act));
  }

  /** It, and calls like it. */
  approveTask() {
    const proposal = this._pressed()?.proposal;
    if (!proposal || votesMissingFor(proposal, this._context.state.me.id) > 0) return;
    if (!offersTask(this._context, proposal) || this._rights() === "no") return;
    this.disarm();
    void taskDialog(this._context, proposal, summaryOf(proposal), (act) => void this._decide("Approving", act));
  }

  vote() {
    const pressed = this._pressed();
    if (!pressed || !this._able(pressed.proposal).vote) return;
    this._confirmThenRun("vote", "Voting", (shown) => vote(this._context, shown));
  }

  withdraw() {
    if (!this._pressed(true)) return;
    this._confirmThenRun("withdraw", "Withdrawing", (shown) => withdraw(this._context, shown));
  }

  /** @param {string} text @param {(shown: import("../proposals/proposal-decisions.js").ReviewedProposal) => Promise<Outcome>} act */
  async _decide(text, act) {
    const shown = this._shown;
    const proposal = this._proposal;
    if (!shown || !proposal) return;
    const title = oneLine(titleOf(proposal), 60);
    const hidden = text.startsWith("Approv") && this._isPartlyHidden() ? " (part of it was not shown)" : "";
    if (
      text !== "Withdrawing" &&
      hold(this._context, shown.id, `${text} ${title}${hidden}`, `${title} was not ${DONE[text] ?? "decided"}`, () =>
        this._send(shown, text, act),
      )
    ) {
      this.draw();
      this._advance(shown.id);
    } else await this._send(shown, text, act);
  }

  /** @param {import("../proposals/proposal-decisions.js").ReviewedProposal} shown @param {string} text @param {(shown: import("../proposals/proposal-decisions.js").ReviewedProposal) => Promise<Outcome>} act */
  async _send(shown, text, act) {
    this._sending.set(shown.id, text);
    this._outcomes.delete(shown.id);
    this.draw();
    const outcome = await act(shown);
    this._sending.delete(shown.id);
    const proposal = this._context.state.proposals.byId.get(shown.id);
    this._outcomes.set(shown.id, outcome);
    if (outcome.status === "done") this._advance(shown.id);
    // Shown beside the buttons: a notice would cover them.
    if (this._proposal?.id === shown.id && this.node.isConnected) this._context.announce(outcome.message);
    else this._context.notify(aboutProposal(proposal, outcome.message), outcome.status === "done" ? "good" : "bad");
    this._context.state.changes.publish("proposals");
    this.draw();
  }

  close() {
    clearTimeout(this._timer);
  }
}
