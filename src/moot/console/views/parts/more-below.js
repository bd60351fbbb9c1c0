/** How much of what scrolls is below what can be seen; a press shows the next of it. */
import { html } from "../../core/page/dom.js";
import { formatNumber } from "../../core/page/numbers.js";

// About the height of a line of text.
const LINE_PIXELS = 22;

/** @param {HTMLElement} body @returns {{node: HTMLElement, watch: (contents: HTMLElement[]) => void}} `watch`: what it has now */
export function moreBelow(body) {
  const node = html.button({
    type: "button",
    class: "approvals-fold",
    hidden: true,
    on: { click: () => body.scrollBy({ top: body.clientHeight * 0.9 }) },
  });
  const draw = () => {
    const lines = Math.round((body.scrollHeight - body.clientHeight - body.scrollTop) / LINE_PIXELS);
    node.hidden = lines < 2 || body.querySelector(".proposal") === null;
    if (!node.hidden) node.textContent = `${formatNumber(lines)} more lines below ↓`;
  };
  const sizes = new ResizeObserver(draw);
  body.addEventListener("scroll", draw);
  return {
    node,
    watch: (contents) => {
      sizes.disconnect();
      for (const each of contents.length > 0 ? [body, ...contents] : []) sizes.observe(each);
    },
  };
}
