/** Sessions and tokens by member, and how they end: one of them, or all that somebody has signed in for. */
import { button, html } from "../../core/page/dom.js";
import { nameOf, oneLine } from "../../core/page/text.js";
import { formatMinute, isoTime, parseTime } from "../../core/page/time.js";
import { actionDialog } from "../parts/action-dialog.js";
import { describeCapability, roleOf } from "../capabilities/capability-text.js";
import { icon } from "../parts/icons.js";

/** @typedef {import("../../app.js").Context} Context @typedef {import("../../core/connection/administration.js").Administration} Administration @typedef {import("../../core/connection/administration.js").AdminToken} AdminToken */

// More than a person looks through: the filter finds the others.
const MAX_MEMBERS = 100;
const MAX_RIGHTS = 60;

/** @param {number} count @param {string} noun */
export function counted(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** Whether it ends by signing somebody out. @param {AdminToken} token */
function endsBySignOut(token) {
  return token.source !== "configured" && token.source !== "invited";
}

/** @param {AdminToken[]} tokens */
function connectionsOf(tokens) {
  return tokens.reduce((sum, each) => sum + each.connections, 0);
}

/**
 * A card for each member, those with connections first.
 * @param {Context} context @param {Administration} client @param {{tokens: AdminToken[], absent: string[]}} known @param {string} filter @param {() => void} changed
 */
export function memberCards(context, client, { tokens, absent }, filter, changed) {
  const wanted = filter.toLowerCase();
  /** @type {Map<string, AdminToken[]>} */
  const members = new Map(absent.filter((name) => name.toLowerCase().includes(wanted)).map((name) => [name, []]));
  for (const token of tokens) {
    if (!`${token.participant}\n${token.client ?? ""}`.toLowerCase().includes(wanted)) continue;
    members.set(token.participant, [...(members.get(token.participant) ?? []), token]);
  }
  const sorted = [...members].sort(
    ([a, ours], [b, theirs]) =>
      Number(connectionsOf(theirs) > 0) - Number(connectionsOf(ours) > 0) ||
      Number(theirs.length > 0) - Number(ours.length > 0) ||
      a.localeCompare(b),
  );
  if (sorted.length === 0)
    return html.div(
      { class: "empty" },
      icon("key", 24),
      html.strong({}, filter ? "No match" : "No tokens"),
      html.p({}, filter ? "No member or program has this in its name." : "Nothing lets anybody into this space."),
    );
  return [
    sorted.slice(0, MAX_MEMBERS).map(([name, own]) => memberCard(context, client, name, own, changed)),
    sorted.length > MAX_MEMBERS &&
      html.p({ class: "soft" }, `and ${counted(sorted.length - MAX_MEMBERS, "more member")}: use the filter`),
  ];
}

/** @param {Context} context @param {Administration} client @param {string} name @param {AdminToken[]} tokens @param {() => void} changed */
function memberCard(context, client, name, tokens, changed) {
  const connections = connectionsOf(tokens);
  return html.section(
    { class: "card administration-member", "aria-label": oneLine(name, 80), data: { member: name } },
    html.div(
      { class: "administration-row" },
      html.h2(
        { class: "grow" },
        nameOf(name),
        name === context.state.me.name && html.span({ class: "soft" }, " (you)"),
      ),
      html.span(
        { class: "pill", data: connections > 0 ? { tone: "good" } : {} },
        html.span({ class: "dot" }),
        connections > 0 ? counted(connections, "connection") : "not connected",
      ),
      (tokens.length === 0 || tokens.some(endsBySignOut)) &&
        button("Sign out everywhere…", () => signOutDialog(context, client, name, tokens, changed), {
          class: "small danger",
          data: { focus: `out-${name}` },
          aria: { label: `Sign ${oneLine(name, 80)} out everywhere…` },
        }),
    ),
    tokens.length === 0
      ? html.p(
          { class: "soft administration-absent" },
          "No session now. A token that the provider issued before may still let them in.",
        )
      : html.ul(
          { class: "administration-tokens" },
          tokens.map((each) => tokenRow(context, client, each, changed)),
        ),
  );
}

/** What kind of token it is. @param {AdminToken} token */
function kindOf(token) {
  const client = html.bdi({ class: "mono" }, oneLine(token.client ?? "", 80));
  if (token.source === "sign_in") return token.client ? ["Signed in with ", client] : ["Signed in"];
  if (token.source === "minted")
    return token.client ? ["Short-lived token, made with ", client] : ["Short-lived token"];
  return [
    { invited: "Token of an invitation", lasting: "Lasting token, made by an administrator" }[token.source] ??
      "Token of the configuration",
  ];
}

/** @param {string} label @param {string | undefined} at */
function timeNode(label, at) {
  const time = parseTime(at, NaN);
  return (
    Number.isFinite(time) && html.span({}, `${label} `, html.time({ datetime: isoTime(time) }, formatMinute(time)))
  );
}

/** @param {Context} context @param {Administration} client @param {AdminToken} token @param {() => void} changed */
function tokenRow(context, client, token, changed) {
  const rights = token.capabilities;
  return html.li(
    { class: "administration-row", data: { token: token.id } },
    html.div(
      { class: "grow" },
      html.div({}, kindOf(token)),
      html.div(
        { class: "soft administration-facts" },
        timeNode("since", token.since),
        timeNode("until", token.expires) || html.span({}, "until it is replaced"),
        token.rule !== undefined && html.span({}, `by rule ${token.rule} of ${hostOf(token.issuer ?? "")}`),
        html.span(
          { class: "mono faint", title: "The beginning of its hash, as moot member tokens shows it" },
          oneLine(token.id, 16),
        ),
        rights !== undefined &&
          html.details({ data: { fold: token.id } }, html.summary({}, roleOf(rights)), rightsList(rights)),
      ),
    ),
    token.connections > 0 &&
      html.span({ class: "soft administration-count" }, counted(token.connections, "connection")),
    button("End…", () => revokeDialog(context, client, token, changed), {
      class: "small",
      data: { focus: `end-${token.id}` },
      aria: { label: `End the token ${token.id} of ${oneLine(token.participant, 80)}…` },
    }),
  );
}

/** @param {any[]} rights */
export function rightsList(rights) {
  if (rights.length === 0) return html.p({ class: "soft" }, "nothing");
  return html.ul(
    { class: "facts" },
    rights.slice(0, MAX_RIGHTS).map((each) => html.li({}, html.bdi({}, oneLine(describeCapability(each), 200)))),
    rights.length > MAX_RIGHTS && html.li({}, `and ${rights.length - MAX_RIGHTS} more`),
  );
}

/** A provider in a word. @param {string} issuer */
export function hostOf(issuer) {
  return oneLine(URL.canParse(issuer) ? new URL(issuer).host || issuer : issuer, 80);
}

/** @param {Context} context @param {string} name */
function isYou(context, name) {
  return (
    name === context.state.me.name &&
    html.p({}, html.strong({}, "This is you: "), "this page may lose its connection, too.")
  );
}

/** @param {Context} context @param {Administration} client @param {AdminToken} token @param {() => void} changed */
function revokeDialog(context, client, token, changed) {
  const again =
    { sign_in: "They can sign in again at the provider; this token stays void.", minted: "It cannot be used again." }[
      token.source
    ] ?? "It cannot be used again: whoever has it needs another one from an administrator.";
  actionDialog(
    "End this token?",
    [
      html.p({}, nameOf(token.participant), ": ", kindOf(token), "."),
      html.p(
        {},
        `It is void at once${token.connections > 0 ? `, and ${counted(token.connections, "connection")} with it` : ""}. ${again}`,
      ),
      isYou(context, token.participant),
    ],
    {
      verb: "End token",
      danger: true,
      act: () => client.revoke(token.id),
      done: () => {
        context.notify(`Ended a token of ${oneLine(token.participant, 40)}`, "good");
        changed();
      },
    },
  );
}

/** @param {Context} context @param {Administration} client @param {string} name @param {AdminToken[]} tokens @param {() => void} changed */
function signOutDialog(context, client, name, tokens, changed) {
  const ended = tokens.filter(endsBySignOut);
  const left = tokens.length - ended.length;
  actionDialog(
    `Sign ${oneLine(name, 40)} out everywhere?`,
    [
      ended.length === 0
        ? html.p(
            {},
            nameOf(name),
            " has no session now. Tokens that the provider issued until now are void from now on.",
          )
        : html.p(
            {},
            `Ends ${ended.length === 1 ? "one session or token" : `${ended.length} sessions and tokens`} of `,
            nameOf(name),
            ` in this space at once, with ${counted(connectionsOf(ended), "connection")}.`,
          ),
      html.p(
        { class: "soft" },
        "Only a token that the provider issues from now on lets them in again. If they leave for good, lock the account at the provider, or remove the member.",
      ),
      left > 0 &&
        html.p(
          {},
          html.strong(
            {},
            `${counted(left, "token")} of the configuration or of an invitation ${left === 1 ? "stays" : "stay"}: `,
          ),
          "end it by itself if it has to go.",
        ),
      isYou(context, name),
    ],
    {
      verb: "Sign out",
      danger: true,
      act: () => client.signOut(name),
      done: () => {
        context.notify(`Signed ${oneLine(name, 40)} out everywhere`, "good");
        changed();
      },
    },
  );
}
