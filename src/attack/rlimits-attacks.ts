/** Attacks on resource limits: higher ones than were set, or lower ones for process 1. */

import { type Attack, broken, defineAttack, type Scene, verdict } from "./attack.ts";
import { readProcess } from "./host-process.ts";
import { javascript, nr } from "./javascript.ts";

const MIB = 1024 * 1024;
const ASKED = { file_mb: 7, open_files: 77, cpu_seconds: 9, pids: 60 };

/** The most that each soft limit may be: rows of /proc/PID/limits (proc_pid_limits(5)). */
const MOST: Readonly<Record<string, number>> = {
  "Max cpu time": ASKED.cpu_seconds + 2,
  "Max file size": ASKED.file_mb * MIB,
  "Max open files": ASKED.open_files,
  "Max processes": 4096,
  "Max core file size": 1,
  "Max locked memory": MIB,
  "Max stack size": 8 * MIB,
  "Max msgqueue size": 0,
  "Max pending signals": 1024,
  "Max realtime priority": 0,
};

/** Resources of setrlimit(2): FSIZE, CORE, NPROC, NOFILE, MEMLOCK, MSGQUEUE, RTPRIO. */
const RAISED = [1, 4, 6, 7, 8, 12, 14];
const RLIMIT_CPU = 0;

/** Soft limits by the name of their row; `unlimited` is infinite. */
function hostLimits(pid: number): Readonly<Record<string, number>> {
  const rows = (readProcess(pid, "limits") ?? "").split("\n").slice(1);
  return Object.fromEntries(
    rows.flatMap((row) => {
      const match = /^(Max [a-z ]+?)\s{2,}(\S+)/.exec(row);
      if (match?.[1] === undefined) return [];
      return [[match[1], match[2] === "unlimited" ? Number.POSITIVE_INFINITY : Number(match[2])]];
    }),
  );
}

function faultsOf(limits: Readonly<Record<string, number>>): readonly string[] {
  return Object.entries(MOST)
    .filter(([name, most]) => !((limits[name] ?? Number.POSITIVE_INFINITY) <= most))
    .map(([name]) => `${name} is ${limits[name]}`);
}

const watch = ({ programs, init }: Scene) => ({
  limits: programs.map(({ pid }) => hostLimits(pid)),
  init: readProcess(init.pid, "limits"),
});

/** The attacks. */
export const RLIMITS_ATTACKS: readonly Attack[] = [
  defineAttack({
    id: "rlimits.set",
    layer: "rlimits",
    needs: ["rlimits"],
    title: "run with resource limits above those of the request",
    program: javascript("released();", { limits: ASKED }),
    watch,
    judge: ({ watched: { limits } }) => {
      if (limits.length === 0) return broken("the host saw no program");
      return verdict(
        limits.flatMap(faultsOf),
        `on the host ${Object.keys(MOST).length} are as they must be`,
      );
    },
  }),
  defineAttack({
    id: "rlimits.raise",
    layer: "rlimits",
    needs: ["rlimits"],
    title: "raise its own limits",
    program: javascript(
      `
const infinite = Buffer.alloc(16, 255);
report({ raised: ${JSON.stringify(RAISED)}.filter((resource) => call(${nr("prlimit64")}, 0, resource, address(infinite), 0) === 0) });
released();
`,
      { limits: ASKED },
    ),
    watch,
    judge: (seen) => {
      const raised = seen.report()["raised"] as readonly number[];
      const faults = [
        ...raised.map((resource) => `resource ${resource} was raised`),
        ...seen.watched.limits.flatMap(faultsOf),
      ];
      return verdict(faults, "refused; on the host they are as they were");
    },
  }),
  defineAttack({
    id: "rlimits.init",
    layer: "rlimits",
    needs: ["rlimits"],
    title: "lower the CPU time of process 1, whose death would end the sandbox",
    program: javascript(`
const second = Buffer.alloc(16);
second[0] = 1; second[8] = 1;
const ready = call(${nr("prlimit64")}, 1, ${RLIMIT_CPU}, address(second), 0);
report({ result: ready });
released();
`),
    watch,
    judge: (seen) => {
      const cpu = /^Max cpu time\s+(\S+)/m.exec(seen.watched.init ?? "")?.[1];
      const faults = [
        ...(Number(seen.report()["result"]) < 0 ? [] : ["the call succeeded"]),
        ...(cpu === "1" || cpu === undefined ? [`process 1 has ${cpu}`] : []),
      ];
      return verdict(faults, "refused; on the host process 1 has what it had");
    },
  }),
];
