/** `cprg tasks`: submits tasks for workers, lists and shows them, waits, follows and cancels. */

import { TASK_STATUSES } from "../../core/task.ts";
import type { Answer } from "../answers.ts";
import { CLIENT_FLAGS, JSON_FLAG, parseTaskId, serverAccess } from "../client-flags.ts";
import { defineCommand } from "../command.ts";
import { usageError } from "../flags.ts";

const ACTIONS = ["list", "submit", "show", "wait", "logs", "cancel"] as const;
type Action = (typeof ACTIONS)[number];

export const tasks = defineCommand({
  name: "tasks",
  aliases: ["task"],
  summary: "Submit tasks for workers; list, follow and cancel them",
  help: {
    usage: [
      "list [--status STATUS] [--limit N] [--json]",
      "submit -c COMMAND... | --prompt TEXT | --input FILE [--wait] [flags]",
      "show ID",
      "wait ID",
      "logs ID",
      "cancel ID",
    ],
    description: [
      "submit queues a task and prints its id; standard error says why it waits. Commands (-c) run one " +
        "after the other on a claimed worker, until one fails; a prompt is for the agent runner, where " +
        "the server has one; --input is the runner's input as JSON.",
      "wait waits for the end, and submit --wait follows too; both exit with 0 when the task succeeded " +
        "and 1 when it did not. logs prints the task's log, and goes on to its end.",
    ],
    examples: [
      { line: "cprg tasks submit -c 'uname -a' -c 'df -h' --wait", does: "Two commands, followed" },
      {
        line: "cprg tasks submit -c 'make test' --repo https://example.org/x.git --label os=linux",
        does: "In a clone of a repository, on a worker with this label",
      },
      { line: "cprg tasks submit --prompt 'fix the failing test'", does: "For the agent" },
      { line: "cprg tasks list --status queued", does: "What waits, and why" },
    ],
  },
  flags: {
    status: { kind: "text", value: "STATUS", doc: `Only these: ${TASK_STATUSES.join(", ")}` },
    limit: { kind: "text", value: "N", doc: "How many at most, 1 to 10000; default 20" },
    command: { kind: "list", short: "c", value: "COMMAND", doc: "A command, for /bin/sh" },
    collect: { kind: "list", value: "GLOB", doc: "Files whose text becomes part of the result" },
    prompt: { kind: "text", value: "TEXT", doc: "What the agent is to do" },
    input: { kind: "text", value: "FILE", doc: "The runner's input as JSON; - is standard input" },
    runner: { kind: "text", value: "NAME", doc: "shell or agent" },
    label: { kind: "list", value: "NAME=VALUE", doc: "What the worker must have" },
    env: { kind: "list", short: "e", value: "NAME=VALUE", doc: "A variable of its programs" },
    repo: { kind: "text", value: "URL", doc: "https or ssh: cloned before the task starts" },
    ref: { kind: "text", value: "REF", doc: "Branch, tag or commit of it" },
    wait: { kind: "switch", doc: "Follow the task to its end" },
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
    const takesId = action !== "list" && action !== "submit";
    if (!takesId && args[1] !== undefined) {
      throw usageError(`Cannot use argument "${args[1]}": ${action} takes none`);
    }
    const id = takesId ? parseTaskId(args[1]) : "";
    // Loaded on demand: other commands save the time.
    const actions = await import("../task-actions.ts");
    const asked = { access: await serverAccess(flags, terminal), json: flags.json, terminal };
    if (action === "list") return await actions.listTasks(flags, asked);
    if (action === "submit") {
      const { taskBody } = await import("../task-input.ts");
      const body: Answer = await taskBody(flags, terminal);
      return await actions.submitTask(body, { ...asked, isFollowed: flags.wait });
    }
    if (action === "show") return await actions.showTask(id, asked);
    if (action === "wait") return await actions.waitForTask(id, asked);
    return action === "logs"
      ? await actions.followTask(id, asked)
      : await actions.cancelTask(id, asked);
  },
});

function parseAction(text: string | undefined): Action {
  const found = ACTIONS.find((action) => action === text);
  if (found !== undefined) return found;
  throw usageError(`Cannot use action "${text ?? ""}": expected ${ACTIONS.join(", ")}`);
}
