/**
 * The tools of every member: read from answers to others' requests, or requested once.
 *
 * A list is requested at most once per member and visit, because everybody sees the request. What a tool declares about
 * itself is its host's claim: it is shown as such, and never relaxes a check.
 */
import { callPermissions } from "../capabilities/capability-match.js";

/**
 * @typedef {object} Tool
 * @property {string} name
 * @property {string} title
 * @property {string} description
 * @property {any} inputSchema
 * @property {Record<string, any>} annotations
 *
 * @typedef {object} ToolList
 * @property {"asking" | "known" | "failed" | "refused"} status
 * @property {Tool[]} tools
 * @property {string} error why it failed
 */

// As in the SDK: a host whose list never ends is broken.
const MAX_PAGES = 50;
const MAX_TOOLS = 2_000;
const LIST_MILLISECONDS = 15_000;
const AGAIN_MILLISECONDS = 10_000;

/** @type {WeakMap<object, ToolCatalogue>} */
const catalogues = new WeakMap();

/** The tools known in a space; the same for every view. @param {import("../../app.js").Context} context */
export function toolCatalogueOf(context) {
  let box = catalogues.get(context.state);
  if (!box) {
    box = new ToolCatalogue(context);
    catalogues.set(context.state, box);
  }
  return box;
}

class ToolCatalogue {
  /** @param {import("../../app.js").Context} context */
  constructor(context) {
    this._context = context;
    /** @type {Map<string, ToolList>} by runtime id */
    this._known = new Map();
    /** @type {Map<string, number>} */
    this._askedAt = new Map();
    /** @type {Set<string>} members whose list will be requested again */
    this._awaited = new Set();
    context.state.on(["envelopes"], () => this._readEnvelopes());
    this._next = context.state.envelopes.first;
    this._readEnvelopes();
  }

  /** @param {string} member */
  of(member) {
    return this._known.get(member);
  }

  /** @param {string} member @param {string} name @returns {Tool | undefined} */
  tool(member, name) {
    return this._known.get(member)?.tools.find((each) => each.name === name);
  }

  /** Whether a request makes sense: it is allowed, and the member is online. @param {string} member */
  canList(member) {
    const { state } = this._context;
    const found = state.roster.get(member);
    return (
      member !== state.me.id &&
      found !== undefined &&
      found.present &&
      !state.roster.isPaused(found) &&
      callPermissions(state.me.capabilities, state, [member], { method: "tools/list", params: undefined }).request !==
        "no"
    );
  }

  /** Request the list if that was not possible before and is now. @param {string} member */
  retry(member) {
    const status = this._known.get(member)?.status;
    if (member && (status === undefined || status === "refused") && this.canList(member)) void this.load(member);
  }

  /** Request the list unless it is known or was requested. @param {string} member @param {{again?: boolean}} [options] @returns {Promise<ToolList>} */
  async load(member, options = {}) {
    const before = this._known.get(member);
    if (before && !options.again && (before.status === "known" || before.status === "asking")) return before;
    if (!this.canList(member))
      return before?.status === "refused"
        ? before
        : this._put(member, {
            status: "refused",
            tools: before?.tools ?? [],
            error: "your permissions do not allow listing its tools, or it is offline",
          });
    this._put(member, { status: "asking", tools: before?.tools ?? [], error: "" });
    /** @type {Tool[]} */
    const tools = [];
    const cursors = new Set();
    try {
      let cursor;
      for (let page = 0; page < MAX_PAGES && tools.length < MAX_TOOLS; page += 1) {
        /** @type {any} */
        const result = await this._context.call(member, "tools/list", cursor === undefined ? undefined : { cursor }, {
          within: LIST_MILLISECONDS,
          background: true,
        });
        tools.push(...toolsOf(result));
        cursor = result?.nextCursor;
        // A cursor that was given before would bring the same pages again.
        if (typeof cursor !== "string" || cursors.has(cursor)) break;
        cursors.add(cursor);
      }
      return this._put(member, { status: "known", tools, error: "" });
    } catch (fault) {
      return this._put(member, {
        status: "failed",
        tools: before?.tools ?? [],
        error: fault instanceof Error ? fault.message : "no reply",
      });
    }
  }

  /** @param {string} member @param {ToolList} known */
  _put(member, known) {
    this._known.set(member, known);
    this._context.state.changes.publish("tools");
    return known;
  }

  /** Request an announced list again; later, if it was requested a moment ago: a host may announce changes constantly. @param {string} member */
  _changed(member) {
    const status = this._known.get(member)?.status;
    if ((status !== "known" && status !== "asking") || this._awaited.has(member)) return;
    const since = status === "asking" ? performance.now() : (this._askedAt.get(member) ?? -Infinity);
    this._awaited.add(member);
    setTimeout(
      () => {
        this._awaited.delete(member);
        this._askedAt.set(member, performance.now());
        void this.load(member, { again: true });
      },
      Math.max(0, since + AGAIN_MILLISECONDS - performance.now()),
    );
  }

  /** Read lists that others requested, and announcements that a list has changed. */
  _readEnvelopes() {
    const { envelopes, proposals } = this._context.state;
    for (let n = Math.max(this._next, envelopes.first); n < envelopes.next; n += 1) {
      const row = envelopes.at(n);
      if (!row || row.type === "gap") continue;
      if (row.operation === "notifications/tools/list_changed") {
        this._changed(row.from);
      } else if (row.kind.startsWith("mcp/response")) {
        const request = proposals.requests.get(row.about[0] ?? "");
        // Only the requester can join the pages of a list.
        if (
          request?.call.method !== "tools/list" ||
          request.answer?.id !== row.id ||
          typeof request.answer.result?.nextCursor === "string" ||
          typeof request.call.params?.cursor === "string"
        )
          continue;
        if (this._known.get(row.from)?.status !== "asking")
          this._put(row.from, { status: "known", tools: toolsOf(request.answer.result), error: "" });
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
    .slice(0, MAX_TOOLS)
    .map((/** @type {any} */ each) => ({
      name: each.name,
      title:
        typeof each.title === "string"
          ? each.title
          : typeof each.annotations?.title === "string"
            ? each.annotations.title
            : "",
      description: typeof each.description === "string" ? each.description : "",
      inputSchema: each.inputSchema ?? { type: "object" },
      annotations: each.annotations !== null && typeof each.annotations === "object" ? each.annotations : {},
    }));
}

/** What a tool declares about itself, each with a tone. @param {Tool} tool @returns {[string, string][]} */
export function declaredHints(tool) {
  const { readOnlyHint, destructiveHint, idempotentHint, openWorldHint } = tool.annotations;
  /** @type {[string, string][]} */
  const claims = [];
  if (readOnlyHint === true) claims.push(["read-only", "good"]);
  else if (destructiveHint === true) claims.push(["destructive", "bad"]);
  else if (destructiveHint === false) claims.push(["non-destructive", "good"]);
  if (idempotentHint === true && readOnlyHint !== true) claims.push(["idempotent", ""]);
  if (openWorldHint === true) claims.push(["open world", "warn"]);
  if (openWorldHint === false) claims.push(["closed world", ""]);
  return claims;
}
