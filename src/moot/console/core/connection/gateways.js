/**
 * The gateways of a cluster, as the page names them: any of them serves the same spaces. All requests and sockets of
 * a page go to one of them; when it fails, they go to the next one together. The page itself stays where it came from.
 */

export class Gateways {
  /** @param {URL} page where the page came from @param {string[]} named the others, and maybe this one */
  constructor(page, named) {
    /** @type {string[]} */
    this._all = [...new Set([page.href, ...named])];
    /** Where to ask now: everybody who holds this object follows. @type {URL} */
    this.current = new URL(page.href);
  }

  get count() {
    return this._all.length;
  }

  /** The gateway at this address does not serve; it is left once, however many notice. @param {string} address */
  leave(address) {
    if (address === this.current.href)
      this.current.href = this._all[(this._all.indexOf(address) + 1) % this._all.length];
  }
}

/** Those that this page names. @param {URL} page */
export function namedGateways(page) {
  const named = document.querySelector('meta[name="moot-gateways"]')?.getAttribute("content") ?? "";
  return new Gateways(page, named.split(" ").filter(Boolean));
}
