/** Attacks on the network: any way out, to the host or beyond. */

import { type Attack, broken, defineAttack, verdict } from "./attack.ts";
import { readProcess } from "./host-process.ts";
import { javascript, nr } from "./javascript.ts";

/** Addresses that no sandbox may reach: the Internet's, private ones, and clouds' own. */
const BEYOND = ["8.8.8.8", "1.1.1.1", "10.0.0.1", "192.168.0.1", "172.17.0.1", "169.254.169.254"];
const TRY_TIMEOUT_MS = 1500;

/** Interfaces of /proc/PID/net/dev. */
function interfaces(table: string): readonly string[] {
  return table
    .trim()
    .split("\n")
    .slice(2)
    .map((line) => (line.split(":")[0] ?? "").trim());
}

/** The attacks. */
export const NETWORK_ATTACKS: readonly Attack[] = [
  defineAttack({
    id: "network.devices",
    layer: "network",
    needs: ["namespaces"],
    title: "find an interface, an address or a route",
    program: javascript("released();"),
    watch: ({ programs }) => {
      const pid = programs[0]?.pid ?? 0;
      return {
        devices: readProcess(pid, "net/dev"),
        addresses: readProcess(pid, "net/if_inet6") ?? "",
        routes: readProcess(pid, "net/route") ?? "",
        table: readProcess(pid, "net/fib_trie") ?? "",
      };
    },
    judge: ({ watched: { devices, addresses, routes, table } }) => {
      if (devices === null) return broken("the host could not look");
      const names = interfaces(devices);
      const faults = [
        ...names.filter((name) => name !== "lo").map((name) => `has ${name}`),
        ...(addresses.trim() === "" ? [] : ["has an IPv6 address"]),
        ...(routes.trim().split("\n").length <= 1 ? [] : ["has a route"]),
        ...(/\d+\.\d+\.\d+\.\d+/.test(table) ? ["has an IPv4 address"] : []),
      ];
      return verdict(faults, "on the host: a lo that is down, no address, no route");
    },
  }),
  defineAttack({
    id: "network.loopback",
    layer: "network",
    needs: ["namespaces"],
    title: "reach a server of the host on its loopback address",
    program: javascript(`
const net = process.getBuiltinModule("node:net");
const tried = {};
try { await fetch("http://127.0.0.1:" + host.port, { signal: AbortSignal.timeout(${TRY_TIMEOUT_MS}) }); tried.fetch = "done"; } catch (error) { tried.fetch = error.name; }
for (const name of ["127.0.0.1", "localhost", "::1", "::ffff:127.0.0.1", "0.0.0.0"]) {
  tried[name] = await new Promise((resolve) => {
    const socket = net.connect({ host: name, port: host.port }, () => resolve("done"));
    socket.on("error", (error) => resolve(error.code));
    setTimeout(() => resolve("late"), ${TRY_TIMEOUT_MS});
  });
}
const inet = Buffer.from([2, 0, host.port >> 8, host.port & 255, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
const socket = call(${nr("socket")}, 2, 1, 0);
tried.raw = socket < 0 || call(${nr("connect")}, socket, address(inet), 16) < 0 ? "refused" : "done";
report(tried);
released();
exit();
`),
    watch: () => undefined,
    judge: (seen) => {
      const done = Object.entries(seen.report()).filter(([, answer]) => answer === "done");
      const came = seen.stage.listeners.connections();
      const faults = [
        ...done.map(([way]) => `${way} connected`),
        ...(came === 0 ? [] : [`the host's server had ${came} connections`]),
      ];
      return verdict(faults, "nobody came to the host's server");
    },
  }),
  defineAttack({
    id: "network.beyond",
    layer: "network",
    needs: ["namespaces"],
    title: "send to the Internet, private networks and a cloud's metadata address; ask for a name",
    program: javascript(`
const done = [];
for (const [family, type] of [[2, 1], [2, 2], [2, 3]]) {
  const socket = call(${nr("socket")}, family, type, type === 3 ? 1 : 0);
  if (socket < 0) continue;
  for (const name of ${JSON.stringify(BEYOND)}) {
    const where = address(Buffer.from([2, 0, 0, 53, ...name.split(".").map(Number), 0, 0, 0, 0, 0, 0, 0, 0]));
    const text = Buffer.from("out");
    if (call(${nr("sendto")}, socket, address(text), text.length, 0x40, where, 16) >= 0) done.push(name);
    if (call(${nr("connect")}, socket, where, 16) === 0) done.push(name);
  }
}
const dns = process.getBuiltinModule("node:dns").promises;
const late = new Promise((resolve) => setTimeout(() => resolve(null), ${TRY_TIMEOUT_MS}));
const answer = await Promise.race([dns.lookup("example.com").catch(() => null), late]);
if (answer !== null) done.push("name " + answer.address);
report({ done });
exit();
`),
    judge: (seen) => {
      const done = seen.report()["done"] as readonly string[];
      return verdict(
        done.length === 0 ? [] : [`reached ${done.join(", ")}`],
        "nothing can be sent",
      );
    },
  }),
  defineAttack({
    id: "network.families",
    layer: "network",
    needs: ["seccomp"],
    title: "open any socket of the Internet (TCP, UDP, raw, ping; IPv4 and IPv6)",
    program: javascript(`
const opened = [];
for (const family of [2, 10]) for (const [type, protocol] of [[1, 0], [2, 0], [3, 1], [2, 1], [1, 262], [5, 132]])
  if (call(${nr("socket")}, family, type, protocol) >= 0) opened.push(family + "/" + type + "/" + protocol);
report({ opened });
`),
    judge: (seen) => {
      const opened = seen.report()["opened"] as readonly string[];
      return verdict(
        opened.map((socket) => `opened ${socket}`),
        "each refused",
      );
    },
  }),
];
