/**
 * Maps of bounded size. The oldest entries are removed a tenth at a time: removing one from the front of a Map for each
 * new one makes every access to the front skip all the entries that were removed before.
 */

/**
 * Remove the oldest entries once there are a tenth more than `max`.
 * @template V
 * @param {Map<string, V>} map
 * @param {number} max
 * @param {(value: V) => boolean} [may] whether an entry may be removed
 */
export function trimMap(map, max, may) {
  if (map.size <= max * 1.1) return;
  let excess = map.size - max;
  for (const [key, value] of map) {
    if (excess === 0) return;
    if (may && !may(value)) continue;
    map.delete(key);
    excess -= 1;
  }
}
