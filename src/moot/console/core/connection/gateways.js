/**
 * The gateways of a cluster, as the page names them: any of them serves the same spaces. What concerns all spaces goes
 * to one of them; when it fails, to the next one. Each space has its own order, so that its members meet at one gateway.
 * The page itself stays where it came from.
 */

export class Gateways {
  /** @param {URL} page where the page came from @param {string[]} named the others, and maybe this one */
  constructor(page, named) {
    this._named = named.map((each) => new URL(each).href);
    this._all = [...new Set([page.href, ...this._named])];
    /** Where to ask now: everybody who holds this object follows. @type {URL} */
    this.current = new URL(page.href);
  }

  get count() {
    return this._all.length;
  }

  /** For `--gateway` of a command: all of them, or where the page came from if something in front of them chooses. */
  get option() {
    const [page] = this._all;
    return (this._named.includes(page) ? this._named : [page]).map((each) => each.replace(/\/$/, "")).join(",");
  }

  /** Those for a space: in the order that the SDK has, too. @param {number | undefined} shard as the gateway tells */
  forShard(shard) {
    if (shard === undefined || this._named.length === 0) return this;
    const [first, ...rest] = [...this._named].sort((a, b) => score(shard, b) - score(shard, a));
    return new Gateways(new URL(first), [...rest, ...this._all]);
  }

  /**
   * What the first of them answers that can be reached; rejects as the last one did.
   * @template T @param {(address: string) => Promise<T>} ask @returns {Promise<T>}
   */
  async reach(ask) {
    for (let left = this.count; ; left -= 1) {
      const { href } = this.current;
      try {
        return await ask(href);
      } catch (fault) {
        if (left === 1) throw fault;
        this.leave(href);
      }
    }
  }

  /** The gateway at this address does not serve; it is left once, however many notice. @param {string} address */
  leave(address) {
    if (address === this.current.href)
      this.current.href = this._all[(this._all.indexOf(address) + 1) % this._all.length];
  }
}

/** As `address_order.py` has it. @param {number} shard @param {string} address */
function score(shard, address) {
  let hash = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(`${shard} ${address.replace(/\/+$/, "")}`))
    hash = Math.imul(hash ^ byte, 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

/** Those that this page names. @param {URL} page */
export function namedGateways(page) {
  const named = document.querySelector('meta[name="moot-gateways"]')?.getAttribute("content") ?? "";
  return new Gateways(page, named.split(" ").filter(Boolean));
}
