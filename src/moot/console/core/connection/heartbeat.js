/**
 * Whether "Live" is still true. A page does not see the pings of its WebSocket, and a connection over which nothing
 * comes any more stays open for minutes. So after a short silence the gateway is asked over HTTP, which costs it next
 * to nothing; without an answer the page says so. After that, and after long silence, the socket itself has to answer.
 */
import { isReachable } from "./gateway-fetch.js";

const BEAT_MILLISECONDS = 2_000;
const SILENCE_MILLISECONDS = 3_000;
const ANSWER_MILLISECONDS = 4_000;
// The socket is asked this often although HTTP works: a proxy may have dropped only the socket.
const SOCKET_SILENCE_MILLISECONDS = 120_000;
// A timer that comes this late: the machine was asleep.
const ASLEEP_MILLISECONDS = 20_000;

export class Heartbeat {
  /**
   * @param {import("./connection.js").Connection} connection @param {URL} gateway where to ask now
   * @param {() => Promise<boolean>} ask something over the socket; false if no answer came
   */
  constructor(connection, gateway, ask) {
    this._connection = connection;
    this._gateway = gateway;
    this._ask = ask;
    this._isAsking = false;
    /** When the gateway, and when the socket, was last known to answer. */
    this._answeredAt = 0;
    this._socketAnsweredAt = 0;
    this._beatAt = Date.now();
    this._timer = setInterval(() => void this._beat(), BEAT_MILLISECONDS);
  }

  close() {
    clearInterval(this._timer);
  }

  async _beat() {
    const now = Date.now();
    const asleep = now - this._beatAt > ASLEEP_MILLISECONDS && !document.hidden;
    this._beatAt = now;
    const connection = this._connection;
    if (connection.state !== "live" || this._isAsking) return;
    if (now - connection.receivedAt < SILENCE_MILLISECONDS) {
      connection.setResponds(true);
      return;
    }
    if (!asleep && now - this._answeredAt < SILENCE_MILLISECONDS) return;
    this._isAsking = true;
    try {
      await this._check(asleep);
    } finally {
      this._isAsking = false;
    }
  }

  /** @param {boolean} suspicious */
  async _check(suspicious) {
    const connection = this._connection;
    const returns = connection.returns;
    const isAlive = await isReachable(this._gateway, ANSWER_MILLISECONDS);
    const isSame = () => connection.state === "live" && connection.returns === returns;
    // A message that arrived meanwhile is an answer, too.
    if (!isSame() || (!isAlive && Date.now() - connection.receivedAt < SILENCE_MILLISECONDS)) return;
    if (!isAlive) {
      // Another gateway of the cluster answers, perhaps; a single one is waited for.
      if (connection.hasOthers) connection.reconnect();
      else connection.setResponds(false);
      return;
    }
    this._answeredAt = Date.now();
    const heardAt = Math.max(connection.receivedAt, this._socketAnsweredAt);
    if (suspicious || !connection.responds || Date.now() - heardAt > SOCKET_SILENCE_MILLISECONDS) {
      const answered = await this._ask();
      if (!isSame()) return;
      if (!answered && connection.receivedAt <= heardAt) {
        connection.reconnect();
        return;
      }
      this._socketAnsweredAt = Date.now();
    }
    connection.setResponds(true);
  }
}
