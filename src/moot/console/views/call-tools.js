// @ts-check
/**
 * The tools of every member: overheard when somebody asks for a list, or asked for once.
 *
 * A list is asked for at most once per member and visit, because everybody sees the question. What a tool says of
 * itself is what its host claims: shown as such, never believed where it would make a decision easier.
 */
import { mayCall } from "./call-rights.js";

/**
 * @typedef {object} Tool
 * @property {string} name
 * @property {string} title
 * @property {string} description
 * @property {any} inputSchema
 * @property {Record<string, any>} annotations
 *
 * @typedef {object} Known
 * @property {"asking" | "known" | "failed" | "refused"} status
 * @property {Tool[]} tools
 * @property {string} words why it failed
 */

// As the SDK: a host that never ends its list is broken.
const MOST_PAGES = 50;
const MOST_TOOLS = 2_000;
const LIST_MILLISECONDS = 15_000;
const AGAIN_MILLISECONDS = 10_000;

/** @type {WeakMap<object, Toolbox>} */
const boxes = new WeakMap();

/** The tools known in a space; the same for every view. @param {import("../app.js").Context} context */
export function toolboxOf(context) {
  let box = boxes.get(context.state);
  if (!box) {
    box = new Toolbox(context);
    boxes.set(context.state, box);
  }
  return box;
}

export class Toolbox {
  /** @param {import("../app.js").Context} context */
  constructor(context) {
    this._context = context;
    /** @type {Map<string, Known>} by runtime id */
    this._known = new Map();
    /** @type {Map<string, number>} */
    this._askedAt = new Map();
    context.state.on(["envelopes"], () => this._overhear());
    this._next = context.state.envelopes.first;
    this._overhear();
  }

  /** @param {string} member */
  of(member) {
    return this._known.get(member);
  }

  /** @param {string} member @param {string} name @returns {Tool | undefined} */
  tool(member, name) {
    return this._known.get(member)?.tools.find((each) => each.name === name);
  }

  /** Whether asking makes sense: allowed, and somebody is there. @param {string} member */
  canAsk(member) {
    const { state } = this._context;
    const found = state.roster.get(member);
    return member !== state.me.id && found !== undefined && found.present && !state.roster.isPaused(found) && mayCall(state.me.capabilities, state, [member], { method: "tools/list", params: undefined }).request !== "no";
  }

  /** Ask if that was not possible before, and is now. @param {string} member */
  retry(member) {
    const status = this._known.get(member)?.status;
    if (member && (status === undefined || status === "refused") && this.canAsk(member)) void this.learn(member);
  }

  /** Ask unless it is known or was asked for. @param {string} member @param {{again?: boolean}} [how] @returns {Promise<Known>} */
  async learn(member, how = {}) {
    const before = this._known.get(member);
    if (before && !how.again && (before.status === "known" || before.status === "asking")) return before;
    if (!this.canAsk(member)) return before?.status === "refused" ? before : this._put(member, { status: "refused", tools: before?.tools ?? [], words: "your rights do not let you ask for its tools, or it is not here" });
    this._put(member, { status: "asking", tools: before?.tools ?? [], words: "" });
    /** @type {Tool[]} */
    const tools = [];
    try {
      let cursor;
      for (let page = 0; page < MOST_PAGES && tools.length < MOST_TOOLS; page += 1) {
        /** @type {any} */
        const result = await this._context.call(member, "tools/list", cursor === undefined ? undefined : { cursor }, { within: LIST_MILLISECONDS });
        tools.push(...toolsOf(result));
        cursor = result?.nextCursor;
        if (typeof cursor !== "string" || cursor === "") break;
      }
      return this._put(member, { status: "known", tools, words: "" });
    } catch (fault) {
      return this._put(member, { status: "failed", tools: before?.tools ?? [], words: fault instanceof Error ? fault.message : "it did not answer" });
    }
  }

  /** @param {string} member @param {Known} known */
  _put(member, known) {
    this._known.set(member, known);
    this._context.state.news.changed("tools");
    return known;
  }

  /** Asked again, but not each time for a host that says so all the time. @param {string} member */
  _changed(member) {
    const known = this._known.get(member);
    if (known?.status !== "known" || Date.now() - (this._askedAt.get(member) ?? 0) < AGAIN_MILLISECONDS) return;
    this._askedAt.set(member, Date.now());
    void this.learn(member, { again: true });
  }

  /** Lists that others asked for, and hosts that say theirs has changed. */
  _overhear() {
    const { envelopes, proposals } = this._context.state;
    for (let n = Math.max(this._next, envelopes.first); n < envelopes.next; n += 1) {
      const row = envelopes.at(n);
      if (!row || row.type === "gap") continue;
      if (row.operation === "notifications/tools/list_changed") {
        this._changed(row.from);
      } else if (row.kind.startsWith("mcp/response")) {
        const asked = proposals.requests.get(row.about[0] ?? "");
        // Pages are only put together by whoever asks for them.
        if (asked?.call.method !== "tools/list" || asked.answer?.id !== row.id || asked.answer.result?.nextCursor || asked.call.params?.cursor) continue;
        if (this._known.get(row.from)?.status !== "asking") this._put(row.from, { status: "known", tools: toolsOf(asked.answer.result), words: "" });
      }
    }
    this._next = envelopes.next;
  }
}

/** @param {any} result @returns {Tool[]} */
function toolsOf(result) {
  if (!Array.isArray(result?.tools)) return [];
  return result.tools
    .filter((/** @type {any} */ each) => typeof each?.name === "string")
    .slice(0, MOST_TOOLS)
    .map((/** @type {any} */ each) => ({
      name: each.name,
      title: typeof each.title === "string" ? each.title : typeof each.annotations?.title === "string" ? each.annotations.title : "",
      description: typeof each.description === "string" ? each.description : "",
      inputSchema: each.inputSchema ?? { type: "object" },
      annotations: each.annotations !== null && typeof each.annotations === "object" ? each.annotations : {},
    }));
}

/** What a tool claims of itself, each with a tone. @param {Tool} tool @returns {[string, string][]} */
export function claimsOf(tool) {
  const { readOnlyHint, destructiveHint, idempotentHint, openWorldHint } = tool.annotations;
  /** @type {[string, string][]} */
  const claims = [];
  if (readOnlyHint === true) claims.push(["only reads", "good"]);
  else if (destructiveHint === true) claims.push(["may destroy", "bad"]);
  else if (destructiveHint === false) claims.push(["only adds", "good"]);
  if (idempotentHint === true && readOnlyHint !== true) claims.push(["twice is as once", ""]);
  if (openWorldHint === true) claims.push(["reaches outside", "warn"]);
  if (openWorldHint === false) claims.push(["stays inside", ""]);
  return claims;
}
