/** Attacks on the limits of a run: more memory, disk, processes, time or output than was given. */

import { setTimeout as sleep } from "node:timers/promises";
import type { LimitName } from "../core/limits.ts";
import { type Attack, broken, defineAttack, held, type Seen, verdict } from "./attack.ts";
import { descendants } from "./host-process.ts";
import { javascript, nr, shell } from "./javascript.ts";

const MIB = 1024 * 1024;
const PIDS = 40;
/** Looks at a fork bomb, this far apart. */
const BOMB_LOOKS = 40;
const BOMB_LOOK_MS = 10;

function hasHit(seen: Seen, limit: LimitName): boolean {
  return seen.outcome.limitsHit.some((hit) => hit.limit === limit);
}

/** The attacks. */
export const LIMITS_ATTACKS: readonly Attack[] = [
  defineAttack({
    id: "limits.memory",
    layer: "limits",
    needs: ["cgroup"],
    title: "take all memory",
    program: javascript("const kept = []; for (;;) kept.push(Buffer.alloc(4 << 20, 1));", {
      limits: { mem_mb: 128 },
    }),
    judge: (seen) => {
      const peak = seen.outcome.usage?.memory_peak_bytes ?? 0;
      if (seen.outcome.reason !== "oom") return broken(`it ended by ${seen.outcome.reason}`);
      if (peak > 129 * MIB) return broken(`it had ${Math.round(peak / MIB)} MiB of 128`);
      return held(`the kernel killed it at ${Math.round(peak / MIB)} MiB of 128`);
    },
  }),
  defineAttack({
    id: "limits.forged",
    layer: "limits",
    needs: [],
    title: "be taken for one that the kernel killed, by killing itself",
    program: shell("kill -KILL $$"),
    judge: ({ outcome }) =>
      outcome.reason === "signal" && outcome.limitsHit.length === 0
        ? held("it ended by a signal, and no limit was noted")
        : broken(`it ended by ${outcome.reason}`),
  }),
  defineAttack({
    id: "limits.tmpfs",
    layer: "limits",
    needs: ["cgroup"],
    title: "hide memory in files and in shared memory",
    program: javascript(
      `
let written = 0;
const block = Buffer.alloc(1 << 20, 1);
for (const path of ["/dev/shm/fill", "/tmp/fill", "/workspace/fill"]) {
  try { const fd = fs.openSync(path, "w"); for (;;) written += fs.writeSync(fd, block); } catch {}
}
report({ written });
released();
`,
      { limits: { mem_mb: 128, disk_mb: 16, file_mb: 100 } },
    ),
    watch: () => undefined,
    judge: (seen) => {
      const written = Number(seen.report()["written"]);
      if (written > 16 * MIB) return broken(`wrote ${Math.round(written / MIB)} MiB of 16`);
      return held(`${Math.round(written / MIB)} MiB of 16 in three places together`);
    },
  }),
  defineAttack({
    id: "limits.inodes",
    layer: "limits",
    needs: ["root"],
    title: "make files without end",
    program: javascript(
      `
let made = 0;
try { for (; made < 100000; made += 1) fs.writeFileSync("/tmp/" + made, ""); } catch {}
report({ made });
`,
      { limits: { inodes: 500 } },
    ),
    judge: (seen) => {
      const made = Number(seen.report()["made"]);
      return made > 500 ? broken(`made ${made} of 500`) : held(`${made} of 500`);
    },
  }),
  defineAttack({
    id: "limits.file",
    layer: "limits",
    needs: ["rlimits"],
    title: "write one file that is larger than it may be, also a sparse one",
    program: javascript(
      `
const signals = process.on("SIGXFSZ", () => {});
const fd = fs.openSync("/tmp/large", "w");
attempt(() => { for (;;) fs.writeSync(fd, Buffer.alloc(1 << 20)); });
attempt(() => fs.writeSync(fd, "x", 1 << 30));
attempt(() => fs.ftruncateSync(fd, 1 << 30));
report({ size: fs.fstatSync(fd).size });
`,
      { limits: { file_mb: 4 } },
    ),
    judge: (seen) => {
      if (seen.outcome.signal === "SIGXFSZ") return held("killed by SIGXFSZ");
      const size = Number(seen.report()["size"]);
      return size > 4 * MIB ? broken(`${size} bytes`) : held(`${size} bytes, no more`);
    },
  }),
  defineAttack({
    id: "limits.descriptors",
    layer: "limits",
    needs: ["rlimits"],
    title: "open files without end",
    program: javascript(
      `
let open = 0;
while (open < 100000 && call(${nr("dup")}, 0) >= 0) open += 1;
report({ open });
exit();
`,
      { limits: { open_files: 100 } },
    ),
    judge: (seen) => {
      const open = Number(seen.report()["open"]);
      return open < 100 ? held(`${open} of 100`) : broken(`opened ${open} of 100`);
    },
  }),
  defineAttack({
    id: "limits.processes",
    layer: "limits",
    needs: ["cgroup"],
    title: "fork without end (a fork bomb)",
    program: shell("echo READY; bomb() { bomb | bomb & }; bomb; while :; do :; done", {
      limits: { pids: PIDS },
      ending: "cancel",
    }),
    watch: async ({ init }) => {
      let most = 0;
      for (let look = 0; look < BOMB_LOOKS; look += 1) {
        most = Math.max(most, descendants(init.pid).length);
        await sleep(BOMB_LOOK_MS);
      }
      return most;
    },
    judge: (seen) => {
      if (seen.watched > PIDS) return broken(`the host saw ${seen.watched} of ${PIDS}`);
      if (!hasHit(seen, "pids")) return broken(`no event says that it was stopped`);
      return held(`the host saw at most ${seen.watched} of ${PIDS}, and it was noted`);
    },
  }),
  defineAttack({
    id: "limits.wall",
    layer: "limits",
    needs: [],
    title: "wait for ever",
    program: shell("kill -STOP $$; while :; do :; done", {
      limits: { wall_seconds: 0.5 },
    }),
    judge: (seen) =>
      seen.outcome.reason === "wall_limit" && hasHit(seen, "wall_seconds")
        ? held("ended at its time, and it was noted")
        : broken(`it ended by ${seen.outcome.reason}`),
  }),
  defineAttack({
    id: "limits.cpu",
    layer: "limits",
    needs: ["cgroup"],
    title: "use more CPU time than it has, in many short processes",
    program: shell("while :; do (:); done", { limits: { cpu_seconds: 0.5, cpu_cores: 1 } }),
    judge: (seen) => {
      const isEnded = seen.outcome.reason === "cpu_limit" && hasHit(seen, "cpu_seconds");
      return isEnded
        ? held(`ended after ${seen.outcome.usage?.cpu_ms ?? 0} ms of all together`)
        : broken(`it ended by ${seen.outcome.reason}`);
    },
  }),
  defineAttack({
    id: "limits.output",
    layer: "limits",
    needs: [],
    title: "print without end and without a newline, on both streams",
    program: javascript(
      `
const block = Buffer.alloc(1 << 16, 65);
for (let n = 0; n < 1000; n += 1) { fs.writeSync(1, block); fs.writeSync(2, block); }
`,
      { limits: { output_kb: 64 } },
    ),
    judge: ({ notices, received, limits }) => {
      const most = limits.output_kb * 1024;
      const cut = notices.filter(({ type }) => type === "truncated").length;
      const faults = [
        ...Object.entries(received).flatMap(([stream, bytes]) =>
          bytes > most ? [`${bytes} bytes of ${stream}`] : [],
        ),
        ...(cut === 2 ? [] : [`${cut} streams were cut`]),
      ];
      return verdict(
        faults,
        `${limits.output_kb} KiB of each stream arrived of 62 MiB; both noted`,
      );
    },
  }),
];
