// @ts-check
/** A member's rights, where each comes from, and how to give and take them (MEW 3.6.1, 3.6.2; D-16 to D-18). */
import { button, el, replace } from "../core/dom.js";
import { nameOf, oneLine, visible } from "../core/text.js";
import { ago, longTime } from "../core/time.js";
import { capabilityPicker } from "./people-rights.js";
import { hasFullRights, inWords } from "./capability-words.js";
import { ledgerOf } from "./grants-ledger.js";
import { icon } from "./icons.js";
import { jsonTree } from "./json-tree.js";
import { askDialog, reasonField, refusalWords, watchForRest } from "./people-acts.js";
import { cannot } from "./people-controls.js";

/** @typedef {import("../app.js").Context} Context @typedef {import("../core/state-roster.js").Member} Member @typedef {import("./grants-ledger.js").Entry} Entry */

// More than a screen of them is shown on demand.
const MOST_RIGHTS = 60;
const MOST_ENDED = 20;

/** A right in words, with its JSON below if asked for. @param {any} capability @param {boolean} exact */
export function rightWords(capability, exact) {
  const description = typeof capability?.description === "string" ? capability.description : "";
  return el("div", { class: "right" },
    el("bdi", { class: "right-words" }, oneLine(inWords(capability), 240)),
    description && el("small", {}, " “", el("bdi", {}, oneLine(description, 120)), "”"),
    exact && el("pre", { class: "right-json mono" }, visible(JSON.stringify(capability))));
}

/**
 * What a member may do, and by whose leave.
 * @param {Context} context @param {Member} member @param {boolean} exact
 */
export function rightsList(context, member, exact) {
  const rights = ledgerOf(context.state).rightsOf(member.name);
  if (rights.length === 0) return el("p", { class: "soft" }, member.capabilities.length === 0 ? "Nothing is known of its rights." : "Nothing.");
  const me = member.id === context.state.me.id;
  return el("ul", { class: "rights" }, rights.slice(0, MOST_RIGHTS).map(({ capability, grant }) => el("li", {},
    rightWords(capability, exact),
    grant && el("span", { class: "tag", data: { tone: "accent" } }, "given by ", nameOf(grant.granter)),
    !me && !grant && button("Take back…", () => patternDialog(context, member, capability), { class: "quiet small take-back", title: "It is its own, or was given before you came", disabled: cannot(context, "capability/revoke"), aria: { label: `Take back: ${oneLine(inWords(capability), 120)}` } }))),
    rights.length > MOST_RIGHTS && el("li", { class: "soft" }, `and ${rights.length - MOST_RIGHTS} more`));
}

/** A grant's chain, from the right that it rests on down to it. @param {Context} context @param {Entry} grant */
function chain(context, grant) {
  const { grants, root, right } = ledgerOf(context.state).chainOf(grant);
  const steps = [
    el("li", {}, nameOf(root), right === undefined ? el("span", { class: "soft" }, " (granted before you joined)") : hasFullRights([right]) ? " has full rights" : [el("span", { class: "soft" }, " can "), el("bdi", {}, oneLine(inWords(right), 120))]),
    ...grants.slice().reverse().map((each) => el("li", { "aria-current": each === grant ? "true" : null }, icon("right", 12), nameOf(each.recipient), el("span", { class: "soft" }, " was granted: "), el("bdi", {}, oneLine(each.capabilities.map(inWords).join(", "), 160)))),
  ];
  return el("ol", { class: "chain", "aria-label": "Chain of this grant" }, steps);
}

/**
 * Grants to or from a member that hold.
 * @param {Context} context @param {Entry[]} grants @param {boolean} exact @param {boolean} gave whether it is the giver
 */
export function grantsList(context, grants, exact, gave) {
  const state = context.state;
  const ledger = ledgerOf(state);
  return el("ul", { class: "grants" }, grants.map((grant) => {
    const may = !cannot(context, "capability/revoke");
    const likely = may && ledger.mayRevoke(state.me.name, state.me.capabilities, grant);
    return el("li", { class: "grant card", data: { grant: grant.id } },
      el("div", { class: "grant-head" },
        el("div", { class: "grow" }, gave ? ["to ", nameOf(grant.recipient)] : ["by ", nameOf(grant.granter)], el("time", { class: "faint", datetime: longTime(grant.at) }, ` ${ago(grant.at)}`),
          state.grants.byId.get(grant.id)?.acknowledged && el("span", { class: "tag" }, icon("check", 12), "acknowledged")),
        button("Revoke…", () => revokeDialog(context, grant), { class: "small danger", shortcut: gave ? undefined : "r", disabled: !may, title: may && !likely ? "Only the giver, whoever they have it from, or a holder of the same right may revoke it" : undefined, aria: { label: `Revoke: ${oneLine(grant.capabilities.map(inWords).join(", "), 120)}` }, data: { place: `revoke-${grant.id}` } })),
      grant.capabilities.map((each) => rightWords(each, exact)),
      grant.reason && el("p", { class: "soft" }, "“", el("bdi", {}, oneLine(grant.reason, 200)), "”"),
      chain(context, grant),
      exact && el("p", { class: "faint small-words" }, "grant ", el("bdi", { class: "mono" }, oneLine(grant.id, 80))));
  }));
}

/** Grants that hold no more. @param {Entry[]} grants */
export function endedGrants(grants) {
  const how = { revoked: "revoked", fell: "fell with what it rested on", removed: "gone with its holder" };
  return el("details", { class: "ended-grants", data: { fold: "ended" } }, el("summary", {}, `Earlier grants (${grants.length})`),
    el("ul", {}, grants.slice(0, MOST_ENDED).map((each) => el("li", {}, nameOf(each.granter), " → ", nameOf(each.recipient), ": ", el("bdi", {}, oneLine(each.given.map(inWords).join(", "), 160)), " ", el("span", { class: "tag" }, each.ended ? how[each.ended.how] : "", each.ended?.how === "revoked" && [" by ", nameOf(each.ended.by)]), each.ended?.reason && el("span", { class: "soft" }, " “", el("bdi", {}, oneLine(each.ended.reason, 120)), "”")))));
}

/** What falls together with a grant. @param {Context} context @param {Entry} grant */
function cascade(context, grant) {
  const fall = ledgerOf(context.state).cascadeOf([grant]);
  if (fall.length === 0) return el("p", { class: "soft" }, "Nothing else rests on it, as far as was seen.");
  return el("div", { class: "cascade" }, el("p", {}, el("strong", {}, "These fall with it:")),
    el("ul", { class: "losses" }, fall.map(({ grant: each, lost }) => el("li", {}, nameOf(each.recipient), el("span", { class: "soft" }, " from "), nameOf(each.granter), ": ", el("bdi", {}, oneLine(lost.map(inWords).join(", "), 160))))));
}

/** @param {Context} context @param {Entry} grant */
export function revokeDialog(context, grant) {
  const reason = reasonField();
  askDialog("Revoke this grant?", [
    el("p", {}, nameOf(grant.recipient), " loses, at once:"),
    el("ul", { class: "losses" }, grant.capabilities.map((each) => el("li", {}, el("bdi", {}, oneLine(inWords(each), 200))))),
    cascade(context, grant),
    reason.node,
  ], {
    verb: "Revoke", danger: true, safe: true,
    act: () => context.say("capability/revoke", { recipient: grant.recipient, grant_id: grant.id, ...(reason.value() ? { reason: reason.value() } : {}) }, { to: [grant.recipient] }),
    then: () => context.notify(`Revoked from ${oneLine(grant.recipient, 40)}`, "good"),
  });
}

/** Take back whatever a pattern covers. @param {Context} context @param {Member} member @param {any} capability */
function patternDialog(context, member, capability) {
  const reason = reasonField();
  const id = { value: "" };
  askDialog("Take this right back?", [
    el("p", {}, "Everything granted to ", nameOf(member.id), " that this covers goes: ", el("bdi", {}, oneLine(inWords(capability), 200))),
    el("p", { class: "soft" }, "Rights from the configuration stay; only an operator changes those. You are told what remains."),
    reason.node,
  ], {
    verb: "Take back", danger: true, safe: true,
    act: () => {
      const doing = context.say("capability/revoke", { recipient: member.id, capabilities: [capability], ...(reason.value() ? { reason: reason.value() } : {}) }, { to: [member.id] });
      id.value = doing.id;
      return doing;
    },
    then: () => {
      context.notify(`Asked for; ${oneLine(member.id, 40)} keeps what was not granted`, "info");
      watchForRest(context, id.value, (refusal) => context.notify(`${refusalWords(refusal)} Still held: ${oneLine((refusal.payload?.remaining ?? []).map(inWords).join(", "), 200)}`, "bad"));
    },
  });
}

/** @param {Context} context @param {Member} member */
export function grantDialog(context, member) {
  const picker = capabilityPicker(context, { profile: "hand", baseline: [] });
  const reason = reasonField();
  askDialog(`Give ${oneLine(member.id, 40)} more rights`, [el("p", { class: "soft" }, "You can give what you hold yourself. It stays until it is revoked, also over a reconnect."), picker.node, reason.node], {
    verb: "Give", class: "wide",
    act: async () => {
      const capabilities = picker.value();
      if (!capabilities || capabilities.length === 0) {
        picker.complain("Say at least one right.");
        return undefined;
      }
      return context.say("capability/grant", { recipient: member.id, capabilities, ...(reason.value() ? { reason: reason.value() } : {}) }, { to: [member.id] });
    },
    then: () => context.notify(`Given to ${oneLine(member.id, 40)}`, "good"),
  });
}

/** The exact capabilities of a member as one JSON text. @param {Context} context @param {Member} member */
export function exactRights(context, member) {
  const holder = el("div", {});
  replace(holder, jsonTree(JSON.stringify(ledgerOf(context.state).rightsOf(member.name).map((each) => each.capability)), { label: "capabilities" }));
  return holder;
}
