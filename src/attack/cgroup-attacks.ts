/** Attacks on the control group: running outside of it, or with other limits than were asked for. */

import { type Attack, broken, defineAttack, held, type Scene, verdict } from "./attack.ts";
import { effectiveLimits, groupDirectories, isMember } from "./host-groups.ts";
import { javascript } from "./javascript.ts";

const MIB = 1024 * 1024;
/** Values that no default has, so that they can only be the request's. */
const ASKED = { mem_mb: 201, pids: 53, cpu_cores: 0.65, disk_mb: 16 };

const FAMILY = `
const { spawn } = process.getBuiltinModule("node:child_process");
for (let n = 0; n < 3; n += 1) spawn("/bin/sh", ["-c", "read line"], { stdio: ["pipe", "ignore", "ignore"], detached: n > 0 });
`;

function membership({ programs }: Scene) {
  return programs.map(({ pid }) => ({
    pid,
    places: groupDirectories(pid),
    isMember: isMember(pid),
    limits: effectiveLimits(pid),
  }));
}

/** The attacks. */
export const CGROUP_ATTACKS: readonly Attack[] = [
  defineAttack({
    id: "cgroup.members",
    layer: "cgroup",
    needs: ["cgroup"],
    title: "run, or have a child in a session of its own run, outside of the sandbox's group",
    program: javascript(`${FAMILY}released(); exit();`, { limits: ASKED }),
    watch: membership,
    judge: ({ stage, watched }) => {
      if (watched.length < 4) return broken(`the host saw ${watched.length} of 4 processes`);
      const faults = watched.flatMap(({ pid, places, isMember }) => [
        ...(isMember ? [] : [`cgroup.procs does not hold ${pid}`]),
        ...(places.some((path) => path.includes(`/${stage.engine.instance}/`))
          ? []
          : [`${pid} is in ${places.join(", ")}`]),
      ]);
      return verdict(faults, `cgroup.procs holds all ${watched.length} processes`);
    },
  }),
  defineAttack({
    id: "cgroup.values",
    layer: "cgroup",
    needs: ["cgroup"],
    title: "run with more memory, processes or CPU than were asked for",
    program: javascript(`${FAMILY}released(); exit();`, { limits: ASKED }),
    watch: membership,
    judge: ({ watched }) => {
      if (watched.length === 0) return broken("the host saw no program");
      const faults = watched.flatMap(({ limits: { memoryBytes, pids, cpuCores, swapBytes } }) => [
        ...(memoryBytes === ASKED.mem_mb * MIB ? [] : [`memory ${memoryBytes}`]),
        ...(pids === ASKED.pids ? [] : [`pids ${pids}`]),
        ...(cpuCores !== null && Math.abs(cpuCores - ASKED.cpu_cores) < 0.001
          ? []
          : [`cpu ${cpuCores}`]),
        ...(swapBytes === null || swapBytes === 0 ? [] : [`swap ${swapBytes}`]),
      ]);
      const { mem_mb, pids, cpu_cores } = ASKED;
      return verdict(
        faults,
        `the kernel's values: ${mem_mb} MiB, ${pids} processes, ${cpu_cores} CPUs`,
      );
    },
  }),
  defineAttack({
    id: "cgroup.escape",
    layer: "cgroup",
    needs: ["cgroup"],
    title: "move itself to another group, or raise its own limits",
    program: javascript(
      `
const done = [];
const places = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids", "/cgroup",
  "/proc/1/root/sys/fs/cgroup", "/proc/self/root/sys/fs/cgroup"];
for (const place of places) {
  for (const name of ["cgroup.procs", "tasks", "memory.max", "memory.limit_in_bytes", "pids.max", "release_agent"]) {
    if (attempt(() => fs.writeFileSync(place + "/" + name, "0", { flag: "r+" })) === "done") done.push(place + "/" + name);
  }
}
report({ done });
released();
`,
      { limits: ASKED },
    ),
    watch: membership,
    judge: (seen) => {
      const done = seen.report()["done"] as readonly string[];
      const moved = seen.watched.filter(
        ({ places, limits }) =>
          !places.some((path) => path.includes(`/${seen.stage.engine.instance}/`)) ||
          limits.memoryBytes !== ASKED.mem_mb * MIB,
      );
      if (done.length > 0 || moved.length > 0) return broken(`wrote ${done.join(", ")}`);
      return held("no group can be reached; on the host it is where it was");
    },
  }),
];
