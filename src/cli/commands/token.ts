/** `cprg token`: makes, lists and revokes the tokens that workers come with. */

import { type Answer, asAnswer, asAnswers, asText } from "../answers.ts";
import { requestJson } from "../client.ts";
import { CLIENT_FLAGS, JSON_FLAG, serverAccess } from "../client-flags.ts";
import { defineCommand } from "../command.ts";
import { parseSeconds } from "../durations.ts";
import { EXIT } from "../exit-code.ts";
import { usageError } from "../flags.ts";
import { type Cell, jsonText, paintFor, table } from "../output.ts";
import { splitPair } from "../settings-parse.ts";
import type { Terminal } from "../terminal.ts";

const ACTIONS = ["mint", "list", "revoke"] as const;
type Action = (typeof ACTIONS)[number];

const EXPIRES_DEFAULT = "24h";
const PATH = "/v1/worker-tokens";

export const token = defineCommand({
  name: "token",
  aliases: [],
  summary: "Mint, list and revoke tokens for workers",
  help: {
    usage: [
      "mint [--worker ID] [--tenant NAME]... [--label NAME=VALUE]... [--expires TIME] [flags]",
      "list [--json]",
      "revoke ID",
    ],
    description: [
      "A token lets workers in. It says which worker may come with it, by id or by a pattern that " +
        "ends with *; for whom it works, everybody unless --tenant is given; which labels it has, " +
        "whatever it says of itself; and when the token ends. It is printed once, alone on standard " +
        "output. Needs an administrator's key.",
      "A token that is revoked cuts the streams that came with it within a second.",
    ],
    examples: [
      { line: "cprg token mint > worker.token", does: "For any worker, for a day" },
      {
        line: "cprg token mint --worker 'ci-*' --tenant acme --label gpu=yes --expires 30d",
        does: "For workers of tenant acme whose ids begin with ci-",
      },
      { line: "cprg token list", does: "Those that were made" },
    ],
  },
  flags: {
    worker: { kind: "text", value: "ID", doc: "Which worker: an id, or a pattern; default *" },
    tenant: { kind: "list", value: "NAME", doc: "For whom; default: every tenant" },
    label: { kind: "list", value: "NAME=VALUE", doc: "A label of its workers" },
    name: { kind: "text", value: "TEXT", doc: "What people call the token" },
    expires: {
      kind: "text",
      value: "TIME",
      doc: `When it ends: 90s, 15m, 12h, 30d; default ${EXPIRES_DEFAULT}`,
    },
    ...JSON_FLAG,
    ...CLIENT_FLAGS,
  },
  arguments: [
    { name: "ACTION", required: true },
    { name: "ID", required: false },
  ],
  takesRest: false,
  async run({ flags, args, terminal }) {
    const action = parseAction(args[0]);
    const id = parseId(action, args[1]);
    const access = await serverAccess(flags, terminal);
    const { json } = flags;
    if (action === "list") {
      const { body } = await requestJson(access, { path: PATH });
      await printList(asAnswers(asAnswer(body)["worker_tokens"]), { json, terminal });
    } else if (action === "mint") {
      const request = { method: "POST", path: PATH, body: mintBody(flags) } as const;
      await printMinted(asAnswer((await requestJson(access, request)).body), { json, terminal });
    } else {
      const path = `${PATH}/${encodeURIComponent(id)}`;
      const { body } = await requestJson(access, { method: "DELETE", path });
      if (json) await terminal.stdout.write(jsonText(body));
      else await terminal.stderr.write(`revoked ${asText(asAnswer(body)["token_id"])}\n`);
    }
    return EXIT.ok;
  },
});

function parseAction(text: string | undefined): Action {
  const found = ACTIONS.find((action) => action === text);
  if (found !== undefined) return found;
  throw usageError(`Cannot use action "${text ?? ""}": expected ${ACTIONS.join(", ")}`);
}

/** The text is not repeated: it may be the token itself. */
function parseId(action: Action, text: string | undefined): string {
  const takesId = action === "revoke";
  if (!takesId && text !== undefined) throw usageError(`Cannot use argument: ${action} takes none`);
  if (!takesId || (text !== undefined && text !== "")) return text ?? "";
  throw usageError("Cannot go on: the token's id is missing", '"cprg token list" has them');
}

interface MintFlags {
  readonly worker: string | undefined;
  readonly tenant: readonly string[];
  readonly label: readonly string[];
  readonly name: string | undefined;
  readonly expires: string | undefined;
}

function mintBody({ worker, tenant, label, name, expires = EXPIRES_DEFAULT }: MintFlags): Answer {
  return {
    expires_in_seconds: parseSeconds(expires, "--expires"),
    ...(worker === undefined ? {} : { worker_id: worker }),
    ...(tenant.length === 0 ? {} : { tenants: tenant }),
    ...(label.length === 0
      ? {}
      : { labels: Object.fromEntries(label.map((pair) => splitPair(pair, "--label"))) }),
    ...(name === undefined ? {} : { name }),
  };
}

interface PrintOptions {
  readonly json: boolean;
  readonly terminal: Terminal;
}

/** The token alone on standard output, for scripts; what it is on standard error, for people. */
async function printMinted(minted: Answer, { json, terminal }: PrintOptions): Promise<void> {
  if (json) return await terminal.stdout.write(jsonText(minted));
  await terminal.stdout.write(`${asText(minted["token"])}\n`);
  const facts = ["token_id", "worker_id", "expires_at"].map((name) => asText(minted[name]));
  await terminal.stderr.write(`minted ${facts.join(" ")}; the token is shown only now\n`);
}

async function printList(found: readonly Answer[], { json, terminal }: PrintOptions) {
  if (json) return await terminal.stdout.write(jsonText({ worker_tokens: found }));
  const header = ["TOKEN", "NAME", "WORKER", "TENANTS", "STATE"];
  const paint = paintFor(terminal.stdout, terminal.env);
  await terminal.stdout.write(table(header, found.map(tokenRow), paint));
}

function tokenRow(found: Answer): Cell[] {
  const tenants = found["tenants"];
  const text = (name: string) => asText(found[name]);
  return [
    text("token_id"),
    text("name"),
    text("worker_id"),
    Array.isArray(tenants) ? tenants.map((each) => asText(each)).join(",") : "every",
    stateOf(text("revoked_at"), text("expires_at")),
  ];
}

function stateOf(revokedAt: string, expiresAt: string): Cell {
  if (revokedAt !== "") return { text: "revoked", colour: "red" };
  if (Date.parse(expiresAt) <= Date.now()) return { text: "ended", colour: "red" };
  return { text: `until ${expiresAt}`, colour: "green" };
}
