/** `cprg workers`: lists the workers of a server, and releases, drains or removes one. */

import { type Answer, asAnswer, asAnswers, asNumber, asText } from "../answers.ts";
import { requestJson, sendBytes } from "../client.ts";
import { CLIENT_FLAGS, JSON_FLAG, serverAccess } from "../client-flags.ts";
import { defineCommand } from "../command.ts";
import { EXIT } from "../exit-code.ts";
import { usageError } from "../flags.ts";
import { type Cell, type Colour, jsonText, paintFor, printable, table } from "../output.ts";

const ACTIONS = ["list", "release", "drain", "remove"] as const;
type Action = (typeof ACTIONS)[number];

const COLOURS: Readonly<Record<string, Colour>> = {
  idle: "green",
  busy: "yellow",
  draining: "dim",
  quarantined: "red",
  reattaching: "yellow",
  lost: "red",
};

const DONE: Readonly<Record<Exclude<Action, "list">, string>> = {
  release: "released",
  drain: "drains",
  remove: "removed",
};

export const workers = defineCommand({
  name: "workers",
  aliases: [],
  summary: "List the workers of a server; release, drain or remove one",
  help: {
    usage: ["list [--json]", "release ID", "drain ID", "remove ID"],
    description: [
      "list shows the workers that work for the key's tenant; with an administrator's key all of " +
        "them. The others need such a key.",
      "release ends a worker's claims, fails their tasks and lets it go on. drain lets it finish its " +
        "claims and take no other. remove ends its stream and claims and forgets its id.",
    ],
    examples: [
      { line: "cprg workers list", does: "Who is there, and what they do" },
      { line: "cprg workers drain build-3", does: "Take no more tasks there" },
    ],
  },
  flags: { ...JSON_FLAG, ...CLIENT_FLAGS },
  arguments: [
    { name: "ACTION", required: true },
    { name: "ID", required: false },
  ],
  takesRest: false,
  async run({ flags, args, terminal }) {
    const action = parseAction(args[0]);
    const id = parseId(action, args[1]);
    const access = await serverAccess(flags, terminal);
    if (action === "list") {
      const found = asAnswers(
        asAnswer((await requestJson(access, { path: "/v1/workers" })).body)["workers"],
      );
      if (flags.json) await terminal.stdout.write(jsonText({ workers: found }));
      else {
        const header = ["WORKER", "NAME", "STATE", "SLOTS", "LABELS", "LAST SEEN"];
        const paint = paintFor(terminal.stdout, terminal.env);
        await terminal.stdout.write(table(header, found.map(workerRow), paint));
      }
      return EXIT.ok;
    }
    const path = `/v1/workers/${encodeURIComponent(id)}`;
    if (action === "remove") {
      await sendBytes(access, { method: "DELETE", path });
      if (flags.json) await terminal.stdout.write(jsonText({ worker_id: id, removed: true }));
    } else {
      const { body } = await requestJson(access, { method: "POST", path: `${path}/${action}` });
      if (flags.json) await terminal.stdout.write(jsonText(body));
    }
    if (!flags.json) await terminal.stderr.write(`${DONE[action]} ${printable(id)}\n`);
    return EXIT.ok;
  },
});

function parseAction(text: string | undefined): Action {
  const found = ACTIONS.find((action) => action === text);
  if (found !== undefined) return found;
  throw usageError(`Cannot use action "${text ?? ""}": expected ${ACTIONS.join(", ")}`);
}

function parseId(action: Action, text = ""): string {
  if (action === "list" && text !== "") {
    throw usageError(`Cannot use argument "${text}": list takes none`);
  }
  if (action === "list" || text !== "") return text;
  throw usageError("Cannot go on: the worker's id is missing", '"cprg workers list" has them');
}

function workerRow(found: Answer): Cell[] {
  const state = asText(found["state"], "?");
  const colour = COLOURS[state];
  const labels = Object.entries(asAnswer(found["labels"])).map(
    ([name, value]) => `${name}=${asText(value)}`,
  );
  return [
    asText(found["worker_id"], "?"),
    asText(found["name"]),
    colour === undefined ? state : { text: state, colour },
    `${asNumber(found["busy_slots"]) ?? "?"}/${asNumber(found["slots"]) ?? "?"}`,
    labels.join(","),
    asText(found["last_seen_at"]),
  ];
}
