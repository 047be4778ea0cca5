/** `cprg key`: makes, lists, rotates and revokes API keys. */

import { isId } from "../../core/ids.ts";
import { type Answer, asText } from "../answers.ts";
import { CLIENT_FLAGS, JSON_FLAG } from "../client-flags.ts";
import { defineCommand } from "../command.ts";
import { parseSeconds } from "../durations.ts";
import { EXIT } from "../exit-code.ts";
import { usageError } from "../flags.ts";
import { type Cell, jsonText, paintFor, table } from "../output.ts";
import { parseInteger, splitPair } from "../settings-parse.ts";
import type { Terminal } from "../terminal.ts";

const ACTIONS = ["create", "list", "revoke", "rotate"] as const;
type Action = (typeof ACTIONS)[number];

export const key = defineCommand({
  name: "key",
  aliases: [],
  summary: "Make, list, rotate and revoke API keys",
  help: {
    usage: [
      "create [--tenant NAME] [--role ROLE] [--name TEXT] [--expires TIME] [flags]",
      "list [--json]",
      "rotate ID [--overlap TIME]",
      "revoke ID",
    ],
    description: [
      "Works on the data directory while no server uses it, else on the server, with an " +
        "administrator's key: that of --key, or of this user's own server. A new key is printed " +
        "once, alone on standard output; only its hash is kept.",
      "A revoked key stops at once, and so do open streams of its. rotate makes a key with the same " +
        "tenant, role, rate and ceilings; the old one goes on for the overlap, 1h unless told " +
        "otherwise. Keys of CPRG_API_KEYS, CPRG_ADMIN_KEYS and the file are changed there.",
    ],
    examples: [
      { line: "cprg key create --tenant acme --name ci", does: "A key for jobs of tenant acme" },
      {
        line: "cprg key create --tenant acme --expires 30d --rate-per-min 600 --ceilings mem_mb=512",
        does: "One that ends, with a rate and a ceiling of its own",
      },
      { line: "cprg key list", does: "Who has keys, and when they were used" },
      {
        line: "cprg key rotate 0197a3f0-1111-7222-8333-444455556666 --overlap 10m",
        does: "A successor; the old key ends in ten minutes",
      },
    ],
  },
  flags: {
    tenant: { kind: "text", value: "NAME", doc: "Whose key it is; default: default" },
    role: { kind: "text", value: "ROLE", doc: "tenant or admin; default: tenant" },
    name: { kind: "text", value: "TEXT", doc: "What people call the key" },
    expires: {
      kind: "text",
      value: "TIME",
      doc: "When it ends: 90s, 15m, 12h, 30d; default: never",
    },
    "rate-per-min": { kind: "text", value: "N", doc: "Requests a minute; default: the server's" },
    ceilings: { kind: "list", value: "NAME=N,…", doc: "Highest limits of its jobs" },
    overlap: { kind: "text", value: "TIME", doc: "How long a rotated key goes on; default 1h" },
    db: { kind: "text", value: "FILE", env: "CPRG_DB", doc: "Database; default cprg.db there" },
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
    const body = action === "create" ? createBody(flags) : rotateBody(flags.overlap);
    // Loaded on demand: it brings the store.
    const { openKeys } = await import("../key-access.ts");
    await using keys = await openKeys(flags, terminal);
    switch (action) {
      case "list": {
        const found = await keys.list();
        await printList(found, { json: flags.json, terminal });
        break;
      }
      case "revoke": {
        const answer = await keys.revoke(id);
        if (flags.json) await terminal.stdout.write(jsonText(answer));
        else await terminal.stderr.write(`revoked ${id}\n`);
        break;
      }
      default: {
        const made = action === "create" ? await keys.create(body) : await keys.rotate(id, body);
        await printMade(made, { json: flags.json, terminal });
      }
    }
    return EXIT.ok;
  },
});

function parseAction(text: string | undefined): Action {
  const found = ACTIONS.find((action) => action === text);
  if (found !== undefined) return found;
  throw usageError(`Cannot use action "${text ?? ""}": expected ${ACTIONS.join(", ")}`);
}

/** The text is not repeated: it may be the key itself. */
function parseId(action: Action, text: string | undefined): string {
  const takesId = action === "revoke" || action === "rotate";
  if (!takesId && text !== undefined) throw usageError(`Cannot use argument: ${action} takes none`);
  const id = text?.toLowerCase() ?? "";
  if (!takesId || isId(id)) return id;
  throw usageError("Cannot use key: expected its id", '"cprg key list" has them');
}

interface CreateFlags {
  readonly tenant: string | undefined;
  readonly role: string | undefined;
  readonly name: string | undefined;
  readonly expires: string | undefined;
  readonly "rate-per-min": string | undefined;
  readonly ceilings: readonly string[];
}

function createBody(flags: CreateFlags): Answer {
  const { tenant, role, name, expires, ceilings } = flags;
  const rate = flags["rate-per-min"];
  const numbers = ceilings.flatMap((part) => part.split(",")).map((pair) => ceilingOf(pair));
  return {
    ...(tenant === undefined ? {} : { tenant }),
    ...(role === undefined ? {} : { role }),
    ...(name === undefined ? {} : { name }),
    ...(expires === undefined ? {} : { expires_in_seconds: parseSeconds(expires, "--expires") }),
    ...(rate === undefined
      ? {}
      : { rate_per_min: parseInteger({ least: 1, most: 1_000_000 })(rate, "--rate-per-min") }),
    ...(numbers.length === 0 ? {} : { ceilings: Object.fromEntries(numbers) }),
  };
}

function ceilingOf(pair: string): [string, number] {
  const [name, text] = splitPair(pair, "--ceilings");
  const value = text.trim() === "" ? Number.NaN : Number(text);
  if (Number.isFinite(value)) return [name, value];
  throw usageError(`Cannot use --ceilings "${pair}": expected a number`);
}

function rotateBody(overlap: string | undefined): Answer {
  return overlap === undefined ? {} : { overlap_seconds: parseSeconds(overlap, "--overlap") };
}

interface PrintOptions {
  readonly json: boolean;
  readonly terminal: Terminal;
}

/** The key alone on standard output, for scripts; what it is on standard error, for people. */
async function printMade(made: Answer, { json, terminal }: PrintOptions): Promise<void> {
  if (json) return await terminal.stdout.write(jsonText(made));
  await terminal.stdout.write(`${asText(made["key"])}\n`);
  const facts = ["key_id", "tenant", "role"].map((name) => asText(made[name])).join(" ");
  await terminal.stderr.write(`made ${facts}; the key is shown only now\n`);
}

async function printList(found: readonly Answer[], { json, terminal }: PrintOptions) {
  if (json) return await terminal.stdout.write(jsonText({ keys: found }));
  const header = ["KEY", "BEGINS", "TENANT", "ROLE", "NAME", "STATE", "LAST USED"];
  const paint = paintFor(terminal.stdout, terminal.env);
  await terminal.stdout.write(table(header, found.map(keyRow), paint));
}

function keyRow(found: Answer): Cell[] {
  const text = (name: string) => asText(found[name]);
  return [
    text("key_id"),
    text("prefix"),
    text("tenant"),
    text("role"),
    text("name"),
    stateOf(text("revoked_at"), text("expires_at")),
    text("last_used_at") || "never",
  ];
}

function stateOf(revokedAt: string, expiresAt: string): Cell {
  if (revokedAt !== "") return { text: "revoked", colour: "red" };
  if (expiresAt === "") return { text: "active", colour: "green" };
  const isOver = Date.parse(expiresAt) <= Date.now();
  if (isOver) return { text: "ended", colour: "red" };
  return { text: `until ${expiresAt}`, colour: "yellow" };
}
