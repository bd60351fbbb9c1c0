/**
 * A command line or a statement with its parts in colours, so that the eye finds programs, options, texts and comments.
 * Every character of it is shown; what is not recognised has no colour.
 */
import { html } from "../../core/page/dom.js";
import { escapeHidden } from "../../core/page/text.js";

/** @typedef {{kind: string, text: string}} Token */

// Longer ones are shown without colours.
export const MAX_CODE_CHARACTERS = 20_000;

const SHELL =
  /(?<string>'[^']*'?|"(?:\\[\s\S]|[^"\\])*"?)|(?<comment>(?<=^|\s)#[^\n]*)|(?<variable>\$(?:\w+|\{[^}]*\}?|\())|(?<sign>&&|\|\||>>|[;|&<>()\n`])|(?<space>[^\S\n]+)|(?<word>(?:\\[\s\S]|[^\s'"$;|&<>()`\\])+|[\s\S])/g;
const SQL =
  /(?<string>'(?:''|[^'])*'?)|(?<comment>--[^\n]*|\/\*[\s\S]*?(?:\*\/|$))|(?<name>"[^"]*"?|`[^`]*`?)|(?<number>\b\d+(?:\.\d+)?\b)|(?<word>[A-Za-z_]\w*)|(?<sign>[^\sA-Za-z0-9_'"`])|(?<space>\s+|[\s\S])/g;
const SQL_WORDS = new Set(
  (
    "select from where and or not null is in like between exists insert into values update set delete truncate drop " +
    "alter create table view index database schema grant revoke to join left right inner outer full cross on using " +
    "group by order having limit offset union all distinct as case when then else end begin commit rollback with " +
    "returning merge replace true false if cascade primary key references default add column rename copy call exec"
  ).split(" "),
);

/** The parts of a command line; together they are the text. @param {string} text @returns {Token[]} */
export function shellTokens(text) {
  let isFirst = true;
  return [...text.matchAll(SHELL)].map(({ groups = {}, 0: part }) => {
    const [kind = "word"] = Object.keys(groups).filter((each) => groups[each] !== undefined);
    if (kind === "space" || kind === "comment") return { kind, text: part };
    const wasFirst = isFirst;
    isFirst = (kind === "sign" && !"<>".includes(part[0])) || part === "$(";
    if (kind !== "word") return { kind, text: part };
    // An assignment comes before the program.
    if (wasFirst && /^\w+=/.test(part)) isFirst = true;
    else if (wasFirst) return { kind: "program", text: part };
    return { kind: part.startsWith("-") ? "option" : "word", text: part };
  });
}

/** The parts of a statement; together they are the text. @param {string} text @returns {Token[]} */
export function sqlTokens(text) {
  return [...text.matchAll(SQL)].map(({ groups = {}, 0: part }) => {
    const [kind = "word"] = Object.keys(groups).filter((each) => groups[each] !== undefined);
    return { kind: kind === "word" && SQL_WORDS.has(part.toLowerCase()) ? "keyword" : kind, text: part };
  });
}

/** @param {string} text @param {"shell" | "sql"} language */
export function codeView(text, language) {
  const tokens = language === "sql" ? sqlTokens(text) : shellTokens(text);
  return html.pre(
    {
      class: "text-block code",
      tabindex: "0",
      role: "group",
      "aria-label": language === "sql" ? "statement" : "command",
    },
    tokens.map(({ kind, text: part }) =>
      ["word", "space"].includes(kind) ? escapeHidden(part) : html.span({ class: `code-${kind}` }, escapeHidden(part)),
    ),
  );
}
