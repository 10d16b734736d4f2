// What another language needs to use the rules: one JSON file and a regex engine.
//
//   workerdiag knowledge export > rules.json
//   node match_lines.mjs rules.json < lines.txt
//
// Prints, for each line, the causes and landmarks that it shows, with what was captured.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

// Patterns are RE2's, case-insensitive. JavaScript spells named groups differently, and has flags
// for the whole pattern only; that (?-i:...) then ignores case is near enough for an example.
function compiled(pattern) {
  const flags = new Set("i");
  const body = pattern
    .replaceAll("(?P<", "(?<")
    .replace(/\(\?([ims]*)(?:-[ims]+)?(:|\))/g, (_, given, end) => {
      given.split("").forEach((flag) => flags.add(flag));
      return end === ":" ? "(?:" : "";
    });
  return new RegExp(body, [...flags].join(""));
}

const rules = JSON.parse(readFileSync(process.argv[2], "utf8"));
const wanted = [
  ...rules.landmarks.map((mark) => ({ owner: mark.id, ...mark })),
  ...rules.causes.flatMap((cause) =>
    cause.signs.filter((sign) => sign.kind === "log").map((sign) => ({ owner: `${cause.id} ${sign.name}`, ...sign })),
  ),
]
  .flatMap((rule) => (rule.patterns ?? [rule.pattern]).map((pattern) => ({ ...rule, pattern })))
  .map((rule) => ({ ...rule, find: compiled(rule.pattern), not: rule.unless && compiled(rule.unless) }));

for await (const line of createInterface({ input: process.stdin })) {
  // The first stage: a line that holds none of a pattern's literals cannot match it.
  const lowered = line.toLowerCase();
  const shown = wanted
    .filter((rule) => rules.literals[rule.pattern].some((literal) => lowered.includes(literal)))
    .map((rule) => ({ owner: rule.owner, found: rule.find.exec(line), not: rule.not }))
    .filter(({ found, not }) => found && !not?.test(line))
    .map(({ owner, found }) => ({ owner, captures: { ...found.groups } }));
  console.log(JSON.stringify(shown));
}
