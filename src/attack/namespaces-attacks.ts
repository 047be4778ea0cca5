/** Attacks on the namespaces: seeing and touching what lives outside. */

import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import { type Attack, broken, defineAttack, held, verdict } from "./attack.ts";
import { processLink } from "./host-process.ts";
import { javascript, nr } from "./javascript.ts";

const KINDS = ["mnt", "pid", "net", "ipc", "uts", "cgroup"];
/** A key of System V IPC that nothing else uses. */
const IPC_KEY = 0x6370_7267;

/** The attacks. */
export const NAMESPACES_ATTACKS: readonly Attack[] = [
  defineAttack({
    id: "namespaces.own",
    layer: "namespaces",
    needs: ["namespaces"],
    title: "run in a namespace of the host or of another sandbox",
    program: javascript("released();"),
    hasNeighbour: true,
    watch: ({ programs, neighbours }) =>
      KINDS.map((kind) => ({
        kind,
        links: [process.pid, programs[0]?.pid ?? 0, neighbours[0]?.pid ?? 0].map((pid) =>
          processLink(pid, `ns/${kind}`),
        ),
      })),
    judge: ({ watched }) => {
      const faults = watched.flatMap(({ kind, links }) => [
        ...(links.includes(null) ? [`${kind} cannot be read`] : []),
        ...(new Set(links).size === links.length ? [] : [`${kind} is shared`]),
      ]);
      return verdict(faults, `on the host: its own ${KINDS.join(", ")}`);
    },
  }),
  defineAttack({
    id: "namespaces.user",
    layer: "namespaces",
    needs: ["identity"],
    title: "run in the host's user namespace",
    program: javascript("released();"),
    watch: ({ programs }) =>
      [process.pid, programs[0]?.pid ?? 0].map((pid) => processLink(pid, "ns/user")),
    judge: ({ watched: [ours, theirs] }) =>
      theirs !== null && theirs !== ours ? held("on the host: its own") : broken("it shares ours"),
  }),
  defineAttack({
    id: "namespaces.processes",
    layer: "namespaces",
    needs: ["namespaces"],
    title: "see processes of the host or of another sandbox",
    program: javascript(`
const pids = fs.readdirSync("/proc").filter((name) => /^\\d+$/.test(name)).map(Number);
const answers = (pid) => call(${nr("kill")}, pid, 0) !== -3;
// Threads of its own have numbers too, and come and go.
const isHidden = (pid) => answers(pid) && !pids.includes(pid) && !fs.existsSync("/proc/self/task/" + pid);
const hidden = [];
for (let pid = 1; pid <= 70000; pid += 1) if (isHidden(pid)) hidden.push(pid);
report({ pids: pids.filter((pid) => ![1, process.pid, process.ppid].includes(pid)), hidden: hidden.filter(isHidden) });
`),
    hasNeighbour: true,
    judge: (seen) => {
      const { pids, hidden } = seen.report() as Record<"pids" | "hidden", readonly number[]>;
      const others = [...pids, ...hidden];
      return verdict(
        others.length === 0 ? [] : [`sees ${others.slice(0, 10).join(", ")}`],
        "70 000 numbers tried: itself and what started it",
      );
    },
  }),
  defineAttack({
    id: "namespaces.names",
    layer: "namespaces",
    needs: ["namespaces"],
    title: "read or change the host's name",
    program: javascript(`
const name = Buffer.from("stolen");
report({ name: fs.readFileSync("/proc/sys/kernel/hostname", "utf8").trim(), set: call(${nr("sethostname")}, address(name), 6) });
released();
`),
    watch: () => hostname(),
    judge: (seen) => {
      const { name, set } = seen.report();
      const isHeld = name === "sandbox" && Number(set) < 0 && hostname() !== "stolen";
      return isHeld
        ? held("it reads sandbox, and may not change it")
        : broken(`name ${name}, ${set}`);
    },
  }),
  defineAttack({
    id: "namespaces.ipc",
    layer: "namespaces",
    needs: ["namespaces"],
    title: "share memory and semaphores with the host (System V IPC)",
    program: javascript(`
const made = [call(${nr("shmget")}, ${IPC_KEY}, 4096, 0o1666), call(${nr("semget")}, ${IPC_KEY}, 1, 0o1666)];
const there = ["shm", "sem", "msg"].map((kind) => fs.readFileSync("/proc/sysvipc/" + kind, "utf8").trim().split("\\n").length - 1);
report({ made, there });
released();
`),
    watch: () =>
      ["shm", "sem", "msg"].filter((kind) =>
        readFileSync(`/proc/sysvipc/${kind}`, "utf8").includes(` ${IPC_KEY} `),
      ),
    judge: (seen) => {
      const there = seen.report()["there"] as readonly number[];
      const faults = [
        ...seen.watched.map((kind) => `the host has its ${kind}`),
        ...(there.every((count) => count <= 1) ? [] : [`sees ${there.join(", ")} objects`]),
      ];
      return verdict(faults, "nothing of it is on the host, and nothing of the host inside");
    },
  }),
  defineAttack({
    id: "namespaces.sockets",
    layer: "namespaces",
    needs: ["namespaces", "root"],
    title: "connect to unix sockets of the host, by path and by abstract name",
    program: javascript(`
const connect = (name) => {
  const address_ = Buffer.concat([Buffer.from([1, 0]), Buffer.from(name)]);
  const socket = call(${nr("socket")}, 1, 1, 0);
  return call(${nr("connect")}, socket, address(address_), address_.length);
};
const abstract = fs.readFileSync("/proc/net/unix", "utf8").split("\\n").filter((line) => / @\\S/.test(line));
report({ path: connect(host.path + "\\0"), abstract: connect("\\0" + host.abstractName), seen: abstract.length });
released();
`),
    watch: ({ stage }) => stage.listeners.connections(),
    judge: (seen) => {
      const { path, abstract, seen: names } = seen.report();
      const faults = [
        ...(Number(path) < 0 ? [] : ["connected by path"]),
        ...(Number(abstract) < 0 ? [] : ["connected by abstract name"]),
        ...(names === 0 ? [] : [`sees ${names} abstract names`]),
        ...(seen.stage.listeners.connections() === 0 ? [] : ["the host was connected to"]),
      ];
      return verdict(faults, "refused; nobody came to the host's sockets");
    },
  }),
];
