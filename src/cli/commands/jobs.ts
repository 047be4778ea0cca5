/** `cprg jobs`: the tenant's jobs on a server. */

import { isTerminal, STATUSES, type Status } from "../../core/reasons.ts";
import { type Answer, asAnswer, asAnswers, asNumber, asText } from "../answers.ts";
import { requestJson, type ServerAccess } from "../client.ts";
import { CLIENT_FLAGS, JSON_FLAG, serverAccess } from "../client-flags.ts";
import { defineCommand } from "../command.ts";
import { EXIT } from "../exit-code.ts";
import { usageError } from "../flags.ts";
import { type Cell, type Colour, formatDuration, jsonText, paintFor, table } from "../output.ts";
import { parseInteger } from "../settings-parse.ts";

/** Most jobs that one call lists. */
const JOBS_MAX = 10_000;
/** Most jobs that the server puts on one page. */
const PAGE_MAX = 500;

const COLOURS: Readonly<Record<Status, Colour>> = {
  queued: "dim",
  running: "yellow",
  succeeded: "green",
  failed: "red",
  timed_out: "red",
  oom_killed: "red",
  cancelled: "yellow",
  error: "red",
};

export const jobs = defineCommand({
  name: "jobs",
  aliases: [],
  summary: "List the jobs of a server, newest first",
  help: {
    usage: ["[--status STATUS] [--language NAME] [--label NAME=VALUE] [--limit N] [--json]"],
    description: [
      "Lists the jobs of the key's tenant, newest first, with how they ended.",
      "Files that a job left in /workspace/out are at /v1/jobs/ID/files, and one of them at " +
        "/v1/jobs/ID/files/PATH.",
    ],
    examples: [
      { line: "cprg jobs", does: "The latest 20 jobs" },
      { line: "cprg jobs --status running", does: "What runs now" },
      { line: "cprg jobs --label team=web", does: "Those with this label" },
      {
        line: "cprg jobs --limit 500 --json | jq -r '.jobs[].job_id'",
        does: "Ids for a script",
      },
    ],
  },
  flags: {
    status: { kind: "text", value: "STATUS", doc: `Only these: ${STATUSES.join(", ")}` },
    language: { kind: "text", value: "NAME", doc: "Only these" },
    label: { kind: "text", value: "NAME=VALUE", doc: "Only those with this label" },
    limit: { kind: "text", value: "N", doc: `How many at most, 1 to ${JOBS_MAX}; default 20` },
    ...JSON_FLAG,
    ...CLIENT_FLAGS,
  },
  arguments: [],
  takesRest: false,
  async run({ flags, terminal }) {
    const count = parseInteger({ least: 1, most: JOBS_MAX })(flags.limit ?? "20", "--limit");
    const status = parseStatus(flags.status);
    const access = await serverAccess(flags, terminal);
    const { language, label } = flags;
    const found = await listJobs(access, { count, filters: { status, language, label } });
    if (flags.json) await terminal.stdout.write(jsonText({ jobs: found }));
    else {
      const paint = paintFor(terminal.stdout, terminal.env);
      const header = ["JOB", "STATUS", "EXIT", "LANGUAGE", "CREATED", "TOOK"];
      await terminal.stdout.write(table(header, found.map(jobRow), paint));
    }
    return EXIT.ok;
  },
});

function parseStatus(text: string | undefined): string | undefined {
  if (text === undefined || (STATUSES as readonly string[]).includes(text)) return text;
  throw usageError(`Cannot use --status "${text}": expected ${STATUSES.join(", ")}`);
}

async function listJobs(
  access: ServerAccess,
  query: {
    readonly count: number;
    readonly filters: Readonly<Record<string, string | undefined>>;
  },
): Promise<readonly Answer[]> {
  const found: Answer[] = [];
  const filters = Object.entries(query.filters).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, value]],
  );
  let cursor = "";
  while (found.length < query.count) {
    const search = new URLSearchParams({
      limit: String(Math.min(PAGE_MAX, query.count - found.length)),
      ...Object.fromEntries(filters),
      ...(cursor === "" ? {} : { cursor }),
    });
    const { body } = await requestJson(access, { path: `/v1/jobs?${search}` });
    const page = asAnswer(body);
    const jobsOfPage = asAnswers(page["jobs"]);
    found.push(...jobsOfPage);
    cursor = asText(page["next_cursor"]);
    if (cursor === "" || jobsOfPage.length === 0) break;
  }
  return found.slice(0, query.count);
}

function jobRow(job: Answer): Cell[] {
  const status = asText(job["status"], "?");
  const known = (STATUSES as readonly string[]).includes(status) ? (status as Status) : null;
  const ended = known !== null && isTerminal(known);
  const exit = asNumber(job["exit_code"]) ?? job["signal"] ?? (ended ? job["reason"] : "");
  return [
    asText(job["job_id"], "?"),
    known === null ? status : { text: status, colour: COLOURS[known] },
    typeof exit === "number" ? String(exit) : asText(exit),
    asText(job["language"]),
    asText(job["created_at"]),
    tookText(job),
  ];
}

function tookText(job: Answer): string {
  const started = Date.parse(asText(job["started_at"]));
  const finished = Date.parse(asText(job["finished_at"]));
  const durationMs = finished - started;
  return Number.isFinite(durationMs) ? formatDuration(durationMs) : "";
}
