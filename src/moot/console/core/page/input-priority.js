/**
 * Input has priority. While somebody presses a button or a key, background work (arriving envelopes, scrolling rows)
 * waits until the frame that shows the response has been drawn. The wait is bounded: typing cannot block the page.
 */

// The usual time from pressing a mouse button to releasing it.
const PRESS_MILLISECONDS = 120;
// The console's response time limit: by then the response is drawn, or the page is hidden and gets no frames.
const ANSWER_MILLISECONDS = 100;

let busyUntil = 0;
let inputs = 0;

addEventListener("pointerdown", () => (busyUntil = performance.now() + PRESS_MILLISECONDS), {
  capture: true,
  passive: true,
});
for (const name of ["click", "keydown"]) addEventListener(name, onInput, { capture: true, passive: true });

function onInput() {
  busyUntil = performance.now() + ANSWER_MILLISECONDS;
  const input = (inputs += 1);
  afterFrame(() => {
    if (input === inputs) busyUntil = 0;
  });
}

/** Run `work` when the next frame has been laid out and painted. @param {() => void} work */
function afterFrame(work) {
  requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => {
      channel.port1.close();
      work();
    };
    channel.port2.postMessage(0);
  });
}

/** How many milliseconds background work has to wait; 0 almost always. */
export function inputDelay() {
  return Math.max(0, busyUntil - performance.now());
}
