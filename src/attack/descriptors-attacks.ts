/** Attacks on descriptors: reaching through one that was left open. */

import { type Attack, broken, defineAttack, held } from "./attack.ts";
import { processDescriptors } from "./host-process.ts";
import { javascript, shell } from "./javascript.ts";

/** The attacks. */
export const DESCRIPTORS_ATTACKS: readonly Attack[] = [
  defineAttack({
    id: "descriptors.three",
    layer: "descriptors",
    needs: ["descriptors"],
    title: "start with more than its three streams",
    // A shell opens none of its own.
    program: shell("echo READY; read line"),
    watch: ({ programs }) => processDescriptors(programs[0]?.pid ?? 0),
    judge: ({ watched }) => {
      if (watched === null) return broken("the host could not look");
      const names = Object.keys(watched).sort();
      const isPlain = Object.values(watched).every(
        (target) => target.startsWith("pipe:") || target === "/dev/null",
      );
      return names.join() === "0,1,2" && isPlain
        ? held("on the host: 0, 1 and 2, each a pipe")
        : broken(JSON.stringify(watched));
    },
  }),
  defineAttack({
    id: "descriptors.inherited",
    layer: "descriptors",
    needs: ["descriptors"],
    title: "reach a directory of the host through a descriptor (runc, CVE-2024-21626)",
    program: javascript(`
const own = fs.statSync("/").dev;
const reached = [];
for (let fd = 0; fd < 1024; fd += 1) {
  const door = "/proc/self/fd/" + fd;
  let status;
  try { status = fs.statSync(door); } catch { continue; }
  if (!status.isDirectory()) continue;
  for (const path of host.canaries) if (attempt(() => fs.readFileSync(door + "/../../../../.." + path)) === "done") reached.push(door);
  try { process.chdir(door); if (fs.existsSync("../../../../.." + host.canaries[0])) reached.push(door); } catch {}
}
report({ reached });
`),
    judge: (seen) => {
      const reached = seen.report()["reached"] as readonly string[];
      return reached.length === 0 ? held("none leads outside") : broken(`through ${reached}`);
    },
  }),
  defineAttack({
    id: "descriptors.init",
    layer: "descriptors",
    needs: ["descriptors"],
    title: "use the descriptors of process 1, which talks to the server",
    program: javascript(`
const reached = [];
for (let fd = 0; fd < 64; fd += 1) if (attempt(() => fs.closeSync(fs.openSync("/proc/1/fd/" + fd, "r"))) === "done") reached.push(fd);
report({ reached });
`),
    judge: (seen) => {
      const reached = seen.report()["reached"] as readonly unknown[];
      return reached.length === 0 ? held("none can be opened") : broken(`opened ${reached}`);
    },
  }),
];
