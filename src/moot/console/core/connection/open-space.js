/** An open space: its state, its connection and its sender. */
import { Connection } from "./connection.js";
import { ChangeFeed } from "../page/change-feed.js";
import { EnvelopeSender, Refused } from "./envelope-sender.js";
import { Heartbeat } from "./heartbeat.js";
import { OlderMessages } from "./older-messages.js";
import { fetchLargeValue } from "./large-values.js";
import { ProposalSync, fetchProposal } from "./proposal-sync.js";
import { State } from "../state/state.js";

// A page lists hundreds of members; no space has that many pages.
const MAX_ROSTER_PAGES = 1_000;

/** An open space: its state, its connection and its sender. */
export class OpenSpace {
  /** @param {import("./session.js").Login} login @param {import("./gateways.js").Gateways} gateways @param {ChangeFeed} sessionChanges */
  constructor(login, gateways, sessionChanges) {
    const base = gateways.current;
    this.login = login;
    this.name = login.space;
    /** Where to ask what concerns this space: the gateway that it is connected to. */
    this.base = base;
    this.state = new State(login.space);
    // Until the welcome arrives, because the history is processed before it.
    this.state.roster.me = { id: login.participant, name: login.participant, capabilities: [] };
    this.connection = new Connection(
      { gateways, ...login },
      {
        onEnvelope: (raw, past) => {
          const envelope = this.state.receive(raw, { past });
          if (envelope && !past) this.sender.receive(envelope, this.state.me.id);
          if (envelope?.kind === "system/welcome" && envelope.payload?.more !== undefined)
            void this._fetchRoster(envelope.id);
        },
        onEarly: (raw) => this._receiveEarly(raw),
        beforeHistory: async (welcome) =>
          Array.isArray(welcome.extensions) &&
          welcome.extensions.includes("moot/list-proposals") &&
          this.sync.refresh(),
        // It has proposals that were decided long ago: the gateway is asked again behind it.
        onHistory: () => this.sync.expectMore(),
        onFrame: (id, data) => this.state.receiveFrame(id, data),
        gap: (text, at, canLoad) => this.state.addGap(text, at, canLoad),
        // Loaded when it is needed, so that the sign-in form needs little.
        readMissed: async (isKnown) => (await import("./missed-messages.js")).readMissed(this.older, isKnown),
        onStateChange: () => {
          this._followConnection();
          this.state.changes.publish("connection");
          sessionChanges.publish("spaces");
        },
      },
    );
    this.connection.isKnown = (id) => this.state.envelopes.has(id);
    this.sender = new EnvelopeSender(this.connection);
    this.state.isOwnQuestion = (id) => this.sender.isBackground(id);
    this.older = new OlderMessages(base, login, this.state);
    this.sync = new ProposalSync(
      this.sender,
      this.state.proposals,
      (id) => fetchProposal(base, login, id),
      () => this.state.changes.publish("proposals"),
    );
    this.fetchLargeValue = (/** @type {import("./large-values.js").LargeValue} */ value) =>
      fetchLargeValue(base, login, value);
    this.state.onProposals = (raw) => this.sync.receivePage(raw);
    this.heartbeat = new Heartbeat(this.connection, base, () => this.sync.refresh());
    this.state.on(["proposals", "chats", "trust"], () => sessionChanges.publish("spaces"));
  }

  /** While the history is on its way: what the inbox needs. @param {string} raw */
  _receiveEarly(raw) {
    const envelope = this.state.receiveEarly(raw);
    if (envelope) this.sender.receive(envelope, this.state.me.id);
  }

  /** What is pending is known only while messages arrive. */
  _followConnection() {
    const { state, responds, reason } = this.connection;
    const isHeard = state === "live" && responds;
    if (state === "waiting" || state === "ended") this.sender.failAll();
    if (isHeard && !this._isHeard) void this.sync.refresh();
    else if (!isHeard && this._isHeard)
      this.sync.lose(
        state === "live" ? "the gateway does not respond" : state === "ended" ? reason : "the connection is lost",
      );
    this._isHeard = isHeard;
  }

  _isHeard = false;

  /** Load what is missing at a gap: what is older than it is dropped and comes back from the journal, page by page. @param {string} id of the gap @returns {Promise<number>} how many were loaded */
  async loadGap(id) {
    if (!this.state.dropThrough(id)) return 0;
    this.older.restart();
    return this.older.load();
  }

  close() {
    this.heartbeat.close();
    this.sync.close();
    this.connection.close();
  }

  /**
   * Fetch what a welcome had no room for, page by page; the state processes the pages as they arrive. A newer
   * welcome starts over.
   * @param {string} welcome its id
   */
  async _fetchRoster(welcome) {
    this._incomplete = welcome;
    /** @type {string | undefined} */
    let after;
    for (let page = 0; page < MAX_ROSTER_PAGES && this._incomplete === welcome; page += 1) {
      try {
        const answer = await this.sender.send("moot/roster", after === undefined ? {} : { after });
        after = answer.payload?.next;
        if (typeof after !== "string") return;
      } catch (fault) {
        const seconds = fault instanceof Refused ? fault.payload?.retry_after : undefined;
        if (typeof seconds !== "number") return;
        await new Promise((go) => setTimeout(go, Math.min(seconds, 60) * 1000));
      }
    }
  }

  /** The id of the welcome whose rest is being fetched. */
  _incomplete = "";
}
