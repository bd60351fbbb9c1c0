/** Counts for people, with the digits and separators of their language. Numbers of messages are shown as they were written instead. */

const plain = new Intl.NumberFormat();

/** @param {number} count */
export function formatNumber(count) {
  return plain.format(count);
}
