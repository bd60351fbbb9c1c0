/** Shared reasoning (MEW 3.5): active and ended sequences, each in the context that its start opened. */
import { trimMap } from "../page/bounded-map.js";
import { reasoningText } from "./envelope-fields.js";

/**
 * @typedef {object} Sequence
 * @property {string} id of the start
 * @property {string} from
 * @property {string} message
 * @property {boolean} startUnknown its start was sent before we joined or during a gap; it is known from its thoughts
 * @property {string} context that its thoughts have: the start's own context and its id
 * @property {string[]} about
 * @property {number} at
 * @property {number} changedAt
 * @property {{id: string, text: string, at: number}[]} thoughts the latest
 * @property {number} dropped earlier thoughts that are no longer kept here
 * @property {"active" | "concluded" | "cancelled"} status
 * @property {string} ending conclusion, or the reason of the cancellation
 * @property {string} endedBy
 * @property {string[]} streams ids of streams that belong to it
 */

const MAX_SEQUENCES = 1_000;
const MAX_THOUGHTS = 500;

export class Reasoning {
  constructor() {
    /** Oldest first, by the id of the start. @type {Map<string, Sequence>} */
    this.byId = new Map();
  }

  /** @returns {Sequence[]} */
  active() {
    return [...this.byId.values()].filter((each) => each.status === "active");
  }

  /** The innermost sequence of a context. @param {string} context @returns {Sequence | undefined} */
  within(context) {
    const steps = context.split("/");
    for (let index = steps.length - 1; index >= 0; index -= 1) {
      const found = this.byId.get(steps[index]);
      if (found) return found;
    }
    return undefined;
  }

  /** @param {any} envelope @param {import("./envelopes.js").Row} row */
  receive(envelope, row) {
    const payload = envelope.payload ?? {};
    const message = reasoningText(payload);
    if (envelope.kind === "reasoning/start") {
      this._start(row.id, row.context ? `${row.context}/${row.id}` : row.id, row, message);
      return "reasoning";
    }
    if (envelope.kind === "stream/request" || envelope.kind === "stream/open") return this._addStream(envelope, row);
    if (!envelope.kind.startsWith("reasoning/") || !row.context) return null;
    const sequence = this._sequenceOf(envelope.kind, row);
    if (!sequence) return null;
    sequence.changedAt = row.at;
    if (envelope.kind === "reasoning/thought") {
      sequence.thoughts.push({ id: row.id, text: message, at: row.at });
      if (sequence.thoughts.length > MAX_THOUGHTS) {
        sequence.thoughts.shift();
        sequence.dropped += 1;
      }
    } else if (envelope.kind === "reasoning/conclusion" && row.from === sequence.from)
      this._end(sequence, "concluded", message, row.from);
    else if (envelope.kind === "reasoning/cancel")
      this._end(sequence, "cancelled", typeof payload.reason === "string" ? payload.reason : message, row.from);
    return "reasoning";
  }

  /** @param {string} id @param {string} context @param {import("./envelopes.js").Row} row @param {string} message @param {boolean} [startUnknown] @returns {Sequence} */
  _start(id, context, row, message, startUnknown = false) {
    /** @type {Sequence} */
    const sequence = {
      id,
      from: row.from,
      message,
      startUnknown: startUnknown,
      context,
      about: startUnknown ? [] : row.about,
      at: row.at,
      changedAt: row.at,
      thoughts: [],
      dropped: 0,
      status: "active",
      ending: "",
      endedBy: "",
      streams: [],
    };
    this.byId.set(id, sequence);
    trimMap(this.byId, MAX_SEQUENCES);
    return sequence;
  }

  /**
   * MEW 3.5.5: any active reasoning can be stopped, so a thought whose start was not received begins a sequence here. The last
   * step of its context is that start, unless the same member has a known outer sequence.
   * @param {string} kind @param {import("./envelopes.js").Row} row @returns {Sequence | undefined}
   */
  _sequenceOf(kind, row) {
    const id = row.context.slice(row.context.lastIndexOf("/") + 1);
    const found = this.within(row.context);
    if (
      kind !== "reasoning/thought" ||
      !id ||
      found?.id === id ||
      (found?.from === row.from && found.status === "active")
    )
      return found;
    return this._start(id, row.context, row, "", true);
  }

  /** @param {Sequence} sequence @param {Sequence["status"]} status @param {string} ending @param {string} by */
  _end(sequence, status, ending, by) {
    if (sequence.status !== "active") return;
    Object.assign(sequence, { status, ending, endedBy: by });
  }

  /** A stream whose request correlates to a start carries its long reasoning. @param {any} envelope @param {import("./envelopes.js").Row} row */
  _addStream(envelope, row) {
    if (envelope.kind === "stream/request") {
      for (const id of row.about) if (this.byId.has(id)) this._requested.set(row.id, id);
      trimMap(this._requested, MAX_SEQUENCES);
      return null;
    }
    const sequence = row.about
      .map((id) => this.byId.get(this._requested.get(id) ?? ""))
      .find((each) => each !== undefined);
    if (!sequence || typeof envelope.payload?.stream_id !== "string") return null;
    sequence.streams.push(envelope.payload.stream_id);
    return "reasoning";
  }

  /** Requests of streams for a sequence: request id → start id. @type {Map<string, string>} */
  _requested = new Map();
}
