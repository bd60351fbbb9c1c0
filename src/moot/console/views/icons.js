// @ts-check
/** The console's icons, drawn with strokes so that they have the colour of the text. */
import { svg } from "../core/dom.js";

/** @type {Record<string, string[]>} paths on a field of 24 by 24 */
const DRAWN = {
  timeline: ["M4 6h16", "M4 12h10", "M4 18h13"],
  approvals: ["M4 5h16v14H4z", "M8 12.5l2.7 2.7L16 9.5"],
  members: ["M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7z", "M2.5 20c.6-3.6 3.2-5.5 6.500-5.500s5.900 1.900 6.500 5.500", "M16 4.500a3.500 3.500 0 0 1 0 6.500", "M18 14.800c2 .7 3.200 2.500 3.600 5.200"],
  chat: ["M4 5h16v11H10l-4.500 4V16H4z"],
  flow: ["M6 8.500a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5z", "M18 20.500a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5z", "M18 8.500a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5z", "M8.500 6h7", "M7.500 8l9 8", "M18 8.500v7"],
  reasoning: ["M9 18h6", "M10 21h4", "M12 3a6 6 0 0 0-3.500 10.900c.7.6 1 1.300 1 2.100h5c0-.8.3-1.500 1-2.100A6 6 0 0 0 12 3z"],
  streams: ["M3 8c3-3 6 3 9 0s6 3 9 0", "M3 13c3-3 6 3 9 0s6 3 9 0", "M3 18c3-3 6 3 9 0s6 3 9 0"],
  call: ["M5 4l14 8-14 8z"],
  rules: ["M12 3l7.500 3v5.500c0 4.500-3 8-7.500 9.500-4.500-1.500-7.500-5-7.500-9.500V6z", "M8.500 11.800l2.500 2.500 4.500-5"],
  help: ["M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18z", "M9.500 9.500a2.500 2.500 0 1 1 3.600 2.300c-.8.400-1.100.900-1.100 1.700", "M12 16.700v.1"],
  theme: ["M12 20a8 8 0 1 0 0-16 8 8 0 0 0 0 16z", "M12 4v16", "M12 8h5.500M12 12h8M12 16h5.500"],
  leave: ["M14 4h5v16h-5", "M10 8l-4 4 4 4", "M6 12h9"],
  close: ["M6 6l12 12", "M18 6L6 18"],
  search: ["M10.500 17a6.500 6.500 0 1 0 0-13 6.500 6.500 0 0 0 0 13z", "M15.500 15.500L20 20"],
  up: ["M12 19V5", "M6 11l6-6 6 6"],
  down: ["M12 5v14", "M6 13l6 6 6-6"],
  right: ["M9 5l7 7-7 7"],
  copy: ["M8 8h12v12H8z", "M16 8V4H4v12h4"],
  check: ["M5 12.500l4.500 4.500L19 7.500"],
  pause: ["M8 5v14", "M16 5v14"],
  warning: ["M12 4l9 16H3z", "M12 10v4.500", "M12 17.300v.1"],
  plus: ["M12 5v14", "M5 12h14"],
  bell: ["M6 16V11a6 6 0 0 1 12 0v5l1.500 2h-15z", "M10 20.500h4"],
  device: ["M7 3h10v18H7z", "M10.500 18h3"],
  gap: ["M4 12h4", "M16 12h4", "M10 8l4 8"],
};

/** @param {string} name @param {number} [size] */
export function icon(name, size = 18) {
  return svg(
    "svg",
    { viewBox: "0 0 24 24", width: String(size), height: String(size), "aria-hidden": "true", class: "icon" },
    (DRAWN[name] ?? []).map((d) => svg("path", { d })),
  );
}
