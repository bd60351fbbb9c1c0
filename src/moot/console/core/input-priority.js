// @ts-check
/**
 * Input has priority. While somebody presses a button or a key, background work (arriving envelopes, moving lines)
 * waits until the frame that answers has been drawn. The wait is bounded: typing cannot block the page.
 */

// From the press of a mouse button to its release; people take about so long.
const PRESS_MILLISECONDS = 120;
// The promise of the console: by then it is answered, or the page is not in sight and gets no frames.
const ANSWER_MILLISECONDS = 100;

let busyUntil = 0;
let inputs = 0;

addEventListener("pointerdown", () => (busyUntil = performance.now() + PRESS_MILLISECONDS), { capture: true, passive: true });
for (const name of ["click", "keydown"]) addEventListener(name, onInput, { capture: true, passive: true });

function onInput() {
  busyUntil = performance.now() + ANSWER_MILLISECONDS;
  const input = (inputs += 1);
  afterFrame(() => {
    if (input === inputs) busyUntil = 0;
  });
}

/** Do something when the next frame has been laid out and painted. @param {() => void} work */
export function afterFrame(work) {
  requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => {
      channel.port1.close();
      work();
    };
    channel.port2.postMessage(0);
  });
}

/** How many milliseconds what goes on by itself has to wait; 0 almost always. */
export function inputDelay() {
  return Math.max(0, busyUntil - performance.now());
}
