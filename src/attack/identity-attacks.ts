/** Attacks on who a program is: more rights, another id, other processes' owners. */

import { type Attack, broken, defineAttack, held, type Scene, verdict } from "./attack.ts";
import { isAlive, processStatus } from "./host-process.ts";
import { javascript, nr } from "./javascript.ts";

const CAPABILITY_SETS = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
const NO_CAPABILITY = "0000000000000000";

/** What does not hurt process 1 when its own id does it: a descriptor that is listed is not opened. */
const HARMLESS = ["kill", "stop", "priority", "files"];

/** Real, effective, saved and file system id of each process, as the host numbers them. */
function hostIds({ init, programs, neighbours }: Scene) {
  const idsOf = (pid: number): readonly string[] => {
    const { Uid = "", Gid = "" } = processStatus(pid);
    return [Uid, Gid].map((ids) => [...new Set(ids.split(/\s+/))].join("/"));
  };
  return {
    init: idsOf(init.pid),
    programs: programs.map(({ pid }) => idsOf(pid)),
    neighbours: neighbours.map(({ pid }) => idsOf(pid)),
  };
}

/** The attacks. */
export const IDENTITY_ATTACKS: readonly Attack[] = [
  defineAttack({
    id: "identity.rights",
    layer: "identity",
    needs: [],
    title: "run with a capability, a group, or a way to gain rights at execve",
    program: javascript("released();"),
    watch: ({ programs }) => programs.map(({ pid }) => processStatus(pid)),
    judge: ({ watched }) => {
      if (watched.length === 0) return broken("the host saw no program");
      const faults = watched.flatMap((status) => [
        ...CAPABILITY_SETS.filter((set) => status[set] !== NO_CAPABILITY).map(
          (set) => `${set} is ${status[set]}`,
        ),
        ...(status["NoNewPrivs"] === "1" ? [] : ["no_new_privs is not set"]),
        ...(status["Groups"] === "" ? [] : [`groups ${status["Groups"]}`]),
      ]);
      return verdict(faults, "on the host: five empty sets, no group, no_new_privs");
    },
  }),
  defineAttack({
    id: "identity.ids",
    layer: "identity",
    needs: ["identity"],
    title: "share a host id with process 1, another sandbox, the server or root",
    program: javascript("released();"),
    hasNeighbour: true,
    watch: hostIds,
    judge: ({ watched: { init, programs, neighbours } }) => {
      const uids = [init, programs[0], neighbours[0]].map((ids) => ids?.[0] ?? "none");
      const gids = [init, programs[0], neighbours[0]].map((ids) => ids?.[1] ?? "none");
      const server = String(process.geteuid?.());
      const faults = [uids, gids].flatMap((ids) => [
        ...(new Set(ids).size === ids.length ? [] : [`shared: ${ids.join(", ")}`]),
        ...ids.filter((id) => !/^\d+$/.test(id) || id === "0" || id === server),
      ]);
      return verdict(faults, `three ids of their own: ${uids.join(", ")}`);
    },
  }),
  defineAttack({
    id: "identity.become",
    layer: "identity",
    needs: [],
    title: "become root or somebody else with every call that sets ids",
    program: javascript(`
const nothing = Buffer.alloc(8);
const tried = {
  setuid: call(${nr("setuid")}, 0), setgid: call(${nr("setgid")}, 0),
  setresuid: call(${nr("setresuid")}, 0, 0, 0), setresgid: call(${nr("setresgid")}, 0, 0, 0),
  setreuid: call(${nr("setreuid")}, 0, 0), setgroups: call(${nr("setgroups")}, 1, address(nothing)),
  setuid1: call(${nr("setuid")}, 1), capset: call(${nr("capset")}, address(Buffer.from([0x22, 5, 8, 0x20, 0, 0, 0, 0])), address(Buffer.alloc(24, 255))),
};
report(tried);
released();
`),
    watch: ({ programs }) => programs.map(({ pid }) => processStatus(pid)),
    judge: (seen) => {
      const done = Object.entries(seen.report()).filter(([, result]) => Number(result) >= 0);
      const rights = seen.watched.filter(({ CapEff }) => CapEff !== NO_CAPABILITY);
      const faults = [
        ...done.map(([name]) => `${name} succeeded`),
        ...rights.map(() => "it has capabilities"),
      ];
      return verdict(faults, "each refused; on the host its ids are what they were");
    },
  }),
  defineAttack({
    id: "identity.setuid-file",
    layer: "identity",
    needs: [],
    title: "gain rights from setuid and setgid copies of a program, and from the host's own",
    program: javascript(`
const { spawnSync } = process.getBuiltinModule("node:child_process");
const { Uid } = { Uid: /^Uid:.*$/m.exec(fs.readFileSync("/proc/self/status", "utf8"))[0] };
const copies = [];
for (const path of ["/workspace/copy", "/tmp/copy"]) {
  fs.copyFileSync(fs.realpathSync("/bin/cat"), path);
  try { fs.chmodSync(path, 0o6755); } catch {}
  const { stdout } = spawnSync(path, ["/proc/self/status"]);
  copies.push(/^Uid:.*$/m.exec(String(stdout))?.[0] === Uid && /^CapEff:\\s+0+$/m.test(String(stdout)));
}
const own = ["su", "sudo", "passwd", "mount", "newgrp", "pkexec"].flatMap((name) => ["/bin/", "/usr/bin/"].map((at) => at + name))
  .filter((path) => { try { return (fs.statSync(path).mode & 0o4000) !== 0; } catch { return false; } });
report({ copies, own: own.length });
`),
    judge: (seen) => {
      const { copies, own } = seen.report();
      const isSame = (copies as readonly boolean[]).every((same) => same);
      if (!isSame) return broken("a copy ran with other rights");
      return held(`copies ran as it did; ${own} setuid files of the host lie on nosuid mounts`);
    },
  }),
  defineAttack({
    id: "identity.init",
    layer: "identity",
    needs: [],
    title: "kill process 1 of its sandbox, read its memory and environment, change its priority",
    program: javascript(`
const tried = {
  kill: call(${nr("kill")}, 1, 9), stop: call(${nr("kill")}, 1, 19), 
  memory: attempt(() => fs.closeSync(fs.openSync("/proc/1/mem", "r+"))) === "done" ? 0 : -1,
  environment: attempt(() => fs.readFileSync("/proc/1/environ")) === "done" ? 0 : -1,
  root: attempt(() => fs.readlinkSync("/proc/1/root")) === "done" ? 0 : -1,
  files: attempt(() => fs.readdirSync("/proc/1/fd")) === "done" ? 0 : -1,
  priority: call(${nr("setpriority")}, 0, 1, 19),
};
report(tried);
released();
`),
    watch: ({ init }) => isAlive(init) && /^S/.test(processStatus(init.pid)["State"] ?? ""),
    judge: (seen) => {
      // Where both have one id the call is made and does nothing (pid_namespaces(7)): the host sees.
      const isShared = seen.stage.engine.layers["identity"] !== true;
      const done = Object.entries(seen.report())
        .filter(([name, result]) => Number(result) >= 0 && !(isShared && HARMLESS.includes(name)))
        .map(([name]) => `${name} succeeded`);
      return verdict(
        [...done, ...(seen.watched ? [] : ["process 1 is hurt"])],
        "each refused; on the host process 1 lives",
      );
    },
  }),
  defineAttack({
    id: "identity.neighbour",
    layer: "identity",
    needs: [],
    title: "kill everything that can be signalled while another sandbox runs",
    program: javascript(`
// A thread's number names its process: its own, which may start threads meanwhile, are left out.
const isOwn = (pid) => fs.existsSync("/proc/self/task/" + pid);
for (let pid = 2; pid < 5000; pid += 1) if (call(${nr("kill")}, pid, 0) === 0 && !isOwn(pid)) call(${nr("kill")}, pid, 9);
for (const pid of host.neighbours) if (!isOwn(pid)) call(${nr("kill")}, pid, 9);
call(${nr("kill")}, -1, 9);
released();
`),
    hasNeighbour: true,
    watch: ({ neighbours, init }) => ({
      alive: neighbours.filter(isAlive).length,
      all: neighbours.length,
      isInitAlive: isAlive(init),
    }),
    judge: ({ watched: { alive, all, isInitAlive } }) =>
      alive === all && all > 0 && isInitAlive
        ? held("on the host the other sandbox and process 1 live on")
        : broken(`${all - alive} of ${all} neighbours died`),
  }),
];
