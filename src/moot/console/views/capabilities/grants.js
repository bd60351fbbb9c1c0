/** A member's permissions, where each comes from, and how to grant and revoke them (MEW 3.6.1, 3.6.2; D-16 to D-18). */
import { button, html } from "../../core/page/dom.js";
import { nameOf, oneLine, escapeHidden } from "../../core/page/text.js";
import { ago, isoTime } from "../../core/page/time.js";
import { capabilityPicker } from "./capability-picker.js";
import { hasFullRights, describeCapability } from "./capability-text.js";
import { ledgerOf } from "./grant-ledger.js";
import { copyButton } from "../timeline/envelope-details.js";
import { termText } from "./grant-terms.js";
import { icon } from "../parts/icons.js";
import { actionDialog, reasonField, refusalText } from "../parts/action-dialog.js";
import { lacksCapability } from "../members/member-controls.js";
import { watchForRemaining } from "../members/member-requests.js";

/** @typedef {import("../../app.js").Context} Context @typedef {import("../../core/state/state-roster.js").Member} Member @typedef {import("./grant-ledger.js").Entry} Entry */

// More than a screenful is shown on demand.
const MAX_PERMISSIONS = 60;
const MAX_ENDED = 20;

/** A permission as text, with its JSON below on demand. @param {any} capability @param {boolean} exact @param {Context} context */
function capabilityNode(capability, exact, context) {
  const description = typeof capability?.description === "string" ? capability.description : "";
  return html.div(
    { class: "right" },
    html.bdi({ class: "right-text" }, oneLine(describeCapability(capability), 240)),
    description && html.small({}, " “", html.bdi({}, oneLine(description, 120)), "”"),
    exact && html.pre({ class: "right-json mono" }, escapeHidden(JSON.stringify(capability))),
    exact && copyButton(JSON.stringify(capability), "Copy this permission as JSON", context),
  );
}

/**
 * The permissions of a member, and who granted them.
 * @param {Context} context @param {Member} member @param {boolean} exact
 */
export function rightsList(context, member, exact) {
  const permissions = ledgerOf(context.state).permissionsOf(member.name);
  if (permissions.length === 0)
    return html.p({ class: "soft" }, member.capabilities.length === 0 ? "Permissions unknown." : "No permissions.");
  const me = member.id === context.state.me.id;
  return html.ul(
    { class: "permissions" },
    permissions
      .slice(0, MAX_PERMISSIONS)
      .map(({ capability, grant }) =>
        html.li(
          {},
          capabilityNode(capability, exact, context),
          grant &&
            html.span(
              { class: "tag", data: { tone: "accent" } },
              "granted by ",
              nameOf(grant.granter),
              termText(grant) && `, ${termText(grant)}`,
            ),
          !me &&
            !grant &&
            button("Remove…", () => removeDialog(context, member, capability), {
              class: "quiet small remove-capability",
              title: "From the configuration, or granted before you joined",
              disabled: lacksCapability(context, "capability/revoke"),
              aria: { label: `Remove: ${oneLine(describeCapability(capability), 120)}` },
            }),
        ),
      ),
    permissions.length > MAX_PERMISSIONS &&
      html.li({ class: "soft" }, `and ${permissions.length - MAX_PERMISSIONS} more`),
  );
}

/** A grant's chain, from the permission that supports it down to it. @param {Context} context @param {Entry} grant */
function chain(context, grant) {
  const { grants, root, right } = ledgerOf(context.state).chainOf(grant);
  const steps = [
    html.li(
      {},
      nameOf(root),
      right === undefined
        ? html.span({ class: "soft" }, " (granted before you joined)")
        : hasFullRights([right])
          ? " has full rights"
          : [html.span({ class: "soft" }, " can "), html.bdi({}, oneLine(describeCapability(right), 120))],
    ),
    ...grants
      .slice()
      .reverse()
      .map((each) =>
        html.li(
          { "aria-current": each === grant ? "true" : null },
          icon("right", 12),
          nameOf(each.recipient),
          html.span({ class: "soft" }, " was granted: "),
          html.bdi({}, oneLine(each.capabilities.map(describeCapability).join(", "), 160)),
        ),
      ),
  ];
  return html.ol({ class: "chain", "aria-label": "Chain of this grant" }, steps);
}

/**
 * Valid grants to or from a member.
 * @param {Context} context @param {Entry[]} grants @param {boolean} exact @param {boolean} gave whether the member is the granter
 */
export function grantsList(context, grants, exact, gave) {
  const state = context.state;
  const ledger = ledgerOf(state);
  return html.ul(
    { class: "grants" },
    grants.map((grant) => {
      const may = !lacksCapability(context, "capability/revoke");
      const likely = may && ledger.mayRevoke(state.me.name, state.me.capabilities, grant);
      return html.li(
        { class: "grant card", data: { grant: grant.id } },
        html.div(
          { class: "grant-head" },
          html.div(
            { class: "grow" },
            gave ? ["to ", nameOf(grant.recipient)] : ["by ", nameOf(grant.granter)],
            html.time({ class: "faint", datetime: isoTime(grant.at) }, ` ${ago(grant.at)}`),
            termText(grant) && html.span({ class: "tag", data: { tone: "accent" } }, termText(grant)),
            state.grants.byId.get(grant.id)?.acknowledged &&
              html.span({ class: "tag" }, icon("check", 12), "acknowledged"),
          ),
          button("Revoke…", () => revokeDialog(context, grant), {
            class: "small danger",
            shortcut: gave ? undefined : "r",
            disabled: !may,
            title:
              may && !likely
                ? "Only the granter, someone above the granter in the chain, or a holder of the same permission can revoke this"
                : undefined,
            aria: { label: `Revoke… ${oneLine(grant.capabilities.map(describeCapability).join(", "), 120)}` },
            data: { focus: `revoke-${grant.id}` },
          }),
        ),
        grant.capabilities.map((each) => capabilityNode(each, exact, context)),
        grant.reason && html.p({ class: "soft" }, "“", html.bdi({}, oneLine(grant.reason, 200)), "”"),
        chain(context, grant),
        exact && html.p({ class: "faint small-text" }, "grant ", html.bdi({ class: "mono" }, oneLine(grant.id, 80))),
      );
    }),
  );
}

/** Ended grants. @param {Entry[]} grants */
export function endedGrants(grants) {
  const options = {
    revoked: "revoked",
    expired: "expired",
    used_up: "used up",
    clock_lost: "ended with a restart, because the clock was not known",
    fell: "ended with the grant it depended on",
    removed: "ended when the member was removed",
  };
  return html.details(
    { class: "ended-grants", data: { fold: "ended" } },
    html.summary({}, `Earlier grants (${grants.length})`),
    html.ul(
      {},
      grants
        .slice(0, MAX_ENDED)
        .map((each) =>
          html.li(
            {},
            nameOf(each.granter),
            " → ",
            nameOf(each.recipient),
            ": ",
            html.bdi({}, oneLine(each.given.map(describeCapability).join(", "), 160)),
            " ",
            html.span(
              { class: "tag" },
              each.ended ? options[each.ended.how] : "",
              each.ended?.how === "revoked" && [" by ", nameOf(each.ended.by)],
            ),
            each.ended?.how === "revoked" &&
              each.ended.reason &&
              html.span({ class: "soft" }, " “", html.bdi({}, oneLine(each.ended.reason, 120)), "”"),
          ),
        ),
    ),
  );
}

/** What is revoked together with a grant. @param {Context} context @param {Entry} grant */
function dependentGrants(context, grant) {
  const fall = ledgerOf(context.state).cascadeOf([grant]);
  if (fall.length === 0) return html.p({ class: "soft" }, "No other known grant depends on it.");
  return html.div(
    { class: "cascade" },
    html.p({}, html.strong({}, "Also revoked, because they depend on it:")),
    html.ul(
      { class: "losses" },
      fall.map(({ grant: each, lost }) =>
        html.li(
          {},
          nameOf(each.recipient),
          html.span({ class: "soft" }, " from "),
          nameOf(each.granter),
          ": ",
          html.bdi({}, oneLine(lost.map(describeCapability).join(", "), 160)),
        ),
      ),
    ),
  );
}

/** @param {Context} context @param {Entry} grant */
export function revokeDialog(context, grant) {
  const reason = reasonField();
  actionDialog(
    "Revoke this grant?",
    [
      html.p({}, nameOf(grant.recipient), " immediately loses permission to:"),
      html.ul(
        { class: "losses" },
        grant.capabilities.map((each) => html.li({}, html.bdi({}, oneLine(describeCapability(each), 200)))),
      ),
      dependentGrants(context, grant),
      reason.node,
    ],
    {
      verb: "Revoke",
      danger: true,
      safe: true,
      act: () =>
        context.send(
          "capability/revoke",
          { recipient: grant.recipient, grant_id: grant.id, ...(reason.value() ? { reason: reason.value() } : {}) },
          { to: [grant.recipient] },
        ),
      done: () => context.notify(`Revoked from ${oneLine(grant.recipient, 40)}`, "good"),
    },
  );
}

/** Take all of them back, at once: nobody is asked before rights end. @param {Context} context @param {Entry[]} grants */
export async function revokeAll(context, grants) {
  const outcomes = await Promise.allSettled(
    grants.map(({ id, recipient }) =>
      context.send("capability/revoke", { recipient, grant_id: id }, { to: [recipient] }),
    ),
  );
  const faults = outcomes.flatMap((each) => (each.status === "rejected" ? [refusalText(each.reason)] : []));
  const text = `${grants.length - faults.length} of ${grants.length} grants revoked`;
  context.notify(faults.length > 0 ? `${text}. ${faults[0]}` : text, faults.length > 0 ? "bad" : "good");
}

/** Revoke everything that a pattern covers. @param {Context} context @param {Member} member @param {any} capability */
function removeDialog(context, member, capability) {
  const reason = reasonField();
  const id = { value: "" };
  actionDialog(
    "Remove this permission?",
    [
      html.p(
        {},
        "Revokes everything granted to ",
        nameOf(member.id),
        " that this covers: ",
        html.bdi({}, oneLine(describeCapability(capability), 200)),
      ),
      html.p(
        { class: "soft" },
        "Permissions from the configuration stay; only an operator can change those. You will see what remains.",
      ),
      reason.node,
    ],
    {
      verb: "Remove",
      danger: true,
      safe: true,
      act: () => {
        const doing = context.send(
          "capability/revoke",
          { recipient: member.id, capabilities: [capability], ...(reason.value() ? { reason: reason.value() } : {}) },
          { to: [member.id] },
        );
        id.value = doing.id;
        return doing;
      },
      done: () => {
        context.notify(
          `Removed what was granted; ${oneLine(member.id, 40)} keeps the permissions from the configuration`,
          "info",
        );
        watchForRemaining(context, id.value, (refusal) =>
          context.notify(
            `${refusalText(refusal)} Remaining: ${oneLine((refusal.payload?.remaining ?? []).map(describeCapability).join(", "), 200)}`,
            "bad",
          ),
        );
      },
    },
  );
}

/** @param {Context} context @param {Member} member */
export function grantDialog(context, member) {
  const picker = capabilityPicker(context, { profile: "hand", baseline: [] });
  const reason = reasonField();
  actionDialog(
    `Add permissions for ${oneLine(member.id, 40)}`,
    [
      html.p({ class: "soft" }, "You can grant permissions that you have yourself. They last until they are revoked."),
      picker.node,
      reason.node,
    ],
    {
      verb: "Grant",
      class: "wide",
      act: async () => {
        const capabilities = picker.value();
        if (!capabilities || capabilities.length === 0) {
          picker.complain("Choose at least one permission.");
          return undefined;
        }
        return context.send(
          "capability/grant",
          { recipient: member.id, capabilities, ...(reason.value() ? { reason: reason.value() } : {}) },
          { to: [member.id] },
        );
      },
      done: () => context.notify(`Granted to ${oneLine(member.id, 40)}`, "good"),
    },
  );
}
