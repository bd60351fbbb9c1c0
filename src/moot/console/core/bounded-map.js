// @ts-check
/**
 * Maps that do not grow for ever. The oldest go a tenth at a time: taking one from the front of a Map for each
 * that comes makes every look at the front walk over all that were taken before.
 */

/**
 * Let the oldest entries go once there are a tenth more than `most`.
 * @template V
 * @param {Map<string, V>} map
 * @param {number} max
 * @param {(value: V) => boolean} [may] whether an entry may go
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
