/** `cprg sandbox list` and `cprg sandbox rm`. */

import { type Answer, asAnswer, asAnswers, asNumber, asText } from "./answers.ts";
import { requestJson } from "./client.ts";
import { serverAccess } from "./client-flags.ts";
import { EXIT } from "./exit-code.ts";
import { jsonText, paintFor, printable, table } from "./output.ts";
import { checkCount, endSandbox, parseSandboxId, type SandboxContext } from "./sandbox-context.ts";

/** Most sandboxes that one call lists, newest first. */
const LISTED_MAX = 500;

/** Lists the tenant's sandboxes. */
export async function listSandboxes(context: SandboxContext): Promise<number> {
  checkCount(context, 0);
  const { flags, terminal } = context;
  const access = await serverAccess(flags, terminal);
  const search = `limit=${LISTED_MAX}&status=${flags.all ? "any" : "open"}`;
  const { body } = await requestJson(access, { path: `/v1/sandboxes?${search}` });
  const found = asAnswers(asAnswer(body)["sandboxes"]);
  if (flags.json) {
    await terminal.stdout.write(jsonText({ sandboxes: found }));
  } else {
    const header = ["SANDBOX", "STATUS", "MEMORY", "CREATED", "EXPIRES", "LABELS"];
    const paint = paintFor(terminal.stdout, terminal.env);
    await terminal.stdout.write(table(header, found.map(row), paint));
  }
  return EXIT.ok;
}

function row(sandbox: Answer): string[] {
  const status = asText(sandbox["status"], "?");
  const reason = asText(sandbox["reason"]);
  const labels = Object.entries(asAnswer(sandbox["labels"]));
  return [
    asText(sandbox["sandbox_id"], "?"),
    reason === "" ? status : `${status} (${reason})`,
    `${asNumber(asAnswer(sandbox["limits"])["mem_mb"]) ?? "?"} MiB`,
    asText(sandbox["created_at"]),
    asText(sandbox["expires_at"]),
    labels.map(([name, value]) => `${name}=${asText(value)}`).join(" "),
  ];
}

/** Ends a sandbox. */
export async function removeSandbox(context: SandboxContext): Promise<number> {
  checkCount(context, 1);
  const { flags, args, terminal } = context;
  const id = parseSandboxId(args[0]);
  const body = await endSandbox(await serverAccess(flags, terminal), id);
  const word = printable(asText(asAnswer(body)["status"], "?"));
  await terminal.stdout.write(flags.json ? jsonText(body) : `${id} ${word}\n`);
  return EXIT.ok;
}
