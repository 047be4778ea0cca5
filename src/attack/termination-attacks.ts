/**
 * Attacks on the end: living on when the end is reported. That nothing of the sandbox lives at that
 * instant, and that nothing at all does after the release, is checked of every attack; these are
 * the ones that try.
 */

import { existsSync } from "node:fs";
import type { Outcome } from "../core/outcome.ts";
import type { Reason } from "../core/reasons.ts";
import { type Attack, broken, defineAttack, held, type Scene } from "./attack.ts";
import { groupDirectories } from "./host-groups.ts";
import { isAlive } from "./host-process.ts";
import { javascript, shell } from "./javascript.ts";

const SHORT = { wall_seconds: 2 };

/** A daemon of a session of its own, that ignores what can be ignored and keeps forking. */
const FORK_FOR_EVER = `trap "" TERM HUP INT QUIT; while :; do (:) & done`;

/** Half of fifty, which a shell makes many times faster than the runtime. */
const CHILDREN =
  "trap '' TERM HUP; n=0; while [ $n -lt 25 ]; do sleep 1000 & n=$((n + 1)); done; echo up; wait";

function ended(outcome: Outcome, reason: Reason, seen: { readonly watched: unknown }) {
  const count = Number(seen.watched);
  if (outcome.reason !== reason) return broken(`it ended by ${outcome.reason}`);
  return held(`ended by ${reason}; the host's pids (${count} were seen) were gone at that instant`);
}

const count = ({ programs }: Scene): number => programs.length;

/** The attacks. */
export const TERMINATION_ATTACKS: readonly Attack[] = [
  defineAttack({
    id: "termination.busy",
    layer: "termination",
    needs: [],
    title: "loop for ever",
    program: shell("echo READY; while :; do :; done", { limits: SHORT }),
    watch: count,
    judge: (seen) => ended(seen.outcome, "wall_limit", seen),
  }),
  defineAttack({
    id: "termination.deaf",
    layer: "termination",
    needs: [],
    title: "ignore every signal that can be ignored",
    program: shell(`trap "" TERM HUP INT QUIT USR1 USR2 ALRM; echo READY; while :; do :; done`, {
      limits: SHORT,
    }),
    watch: count,
    judge: (seen) => ended(seen.outcome, "wall_limit", seen),
  }),
  defineAttack({
    id: "termination.stopped",
    layer: "termination",
    needs: [],
    title: "stop itself and its children with SIGSTOP",
    program: shell(
      `echo READY; sh -c 'kill -STOP $$; while :; do :; done' & kill -STOP $$; read line`,
      {
        limits: SHORT,
      },
    ),
    watch: count,
    judge: (seen) => ended(seen.outcome, "wall_limit", seen),
  }),
  defineAttack({
    id: "termination.children",
    layer: "termination",
    needs: [],
    title: "have fifty children when it is cancelled",
    program: javascript(
      `
const { spawn } = process.getBuiltinModule("node:child_process");
let up = 0;
for (const detached of [false, true]) {
  const child = spawn("/bin/sh", ["-c", ${JSON.stringify(CHILDREN)}], { stdio: ["ignore", "pipe", "ignore"], detached });
  child.stdout.once("data", () => { up += 1; if (up === 2) { released(); for (;;) {} } });
}
`,
      { limits: { pids: 100 }, ending: "cancel" },
    ),
    watch: count,
    judge: (seen) =>
      Number(seen.watched) > 50
        ? ended(seen.outcome, "user", seen)
        : broken(`only ${seen.watched} processes were seen`),
  }),
  defineAttack({
    id: "termination.daemon",
    layer: "termination",
    needs: [],
    title: "exit, and leave a daemon in a session of its own that keeps forking",
    program: javascript(
      `
const { spawn } = process.getBuiltinModule("node:child_process");
spawn("/bin/sh", ["-c", ${JSON.stringify(`(${FORK_FOR_EVER}) &`)}], { stdio: ["ignore", "ignore", "ignore"], detached: true }).unref();
released();
exit();
`,
      { limits: { pids: 60 } },
    ),
    watch: count,
    judge: ({ outcome, watched }) => {
      if (outcome.reason !== "exit") return broken(`it ended by ${outcome.reason}`);
      if (outcome.killed === 0) return broken("no daemon had to be killed");
      return held(`${outcome.killed} killed, ${watched} seen before; none lived at that instant`);
    },
  }),
  defineAttack({
    id: "termination.forking",
    layer: "termination",
    needs: [],
    title: "fork while it is killed",
    program: shell(`trap "" TERM; echo READY; ${FORK_FOR_EVER}`, {
      limits: { pids: 60 },
      ending: "cancel",
    }),
    watch: count,
    judge: (seen) => ended(seen.outcome, "user", seen),
  }),
  defineAttack({
    id: "termination.rest",
    layer: "termination",
    needs: [],
    title: "end so that no other program can run in the sandbox",
    program: shell("(while :; do :; done) & echo READY; kill -STOP $$; read line", {
      ending: "cancel",
    }),
    after: { program: javascript("report({ alive: true });"), where: "same" },
    watch: count,
    judge: (seen) =>
      seen.reportAfter()["alive"] === true
        ? ended(seen.outcome, "user", seen)
        : broken("nothing runs there any more"),
  }),
  defineAttack({
    id: "termination.release",
    layer: "termination",
    needs: [],
    title: "outlive its sandbox, or leave groups of it behind",
    program: shell(`trap "" TERM HUP; echo READY; (while :; do :; done) & while :; do :; done`, {
      ending: "release",
    }),
    watch: ({ stage, programs, init }) => ({
      programs,
      init,
      groups: programs
        .flatMap(({ pid }) => groupDirectories(pid))
        .filter((path) => path.includes(`/${stage.engine.instance}/`)),
    }),
    judge: ({ watched: { programs, init, groups } }) => {
      const alive = [init, ...programs].filter(isAlive).length;
      const left = groups.filter((path) => existsSync(path));
      if (alive > 0 || left.length > 0) return broken(`${alive} live, left ${left.join(", ")}`);
      return held(`process 1, ${programs.length} programs and ${groups.length} groups are gone`);
    },
  }),
];
