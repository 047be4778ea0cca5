/**
 * Runs in a process of its own, for what cannot be undone in the test runner's: prints one line of
 * JSON about one sandbox. Arguments: the id map, and the numbers of system calls to answer ENOSYS,
 * or EPERM with "eperm".
 */
import { ptr } from "bun:ffi";
import { readdirSync } from "node:fs";
import { native, prctl, removeTemporaryDirectories, temporaryDirectory } from "./native.ts";
import { minimalPlan, minimalSteps, Sandbox } from "./sandbox.ts";
import { encodeArchive, op } from "./wire.ts";

/** seccomp(2): a filter that outlives every fork and execve of this process. */
function denySystemCalls(numbers: readonly number[], errno: number): void {
  const [load, equal, give] = [0x20, 0x15, 0x06];
  const allow = 0x7fff_0000;
  const program = [
    [load, 0, 0, 0],
    ...numbers.map((number, index) => [equal, numbers.length - index, 0, number]),
    [give, 0, 0, allow],
    [give, 0, 0, 0x0005_0000 + errno],
  ] as const;
  const filter = new DataView(new ArrayBuffer(program.length * 8));
  program.forEach(([code, yes, no, value], index) => {
    filter.setUint16(index * 8, code, true);
    filter.setUint8(index * 8 + 2, yes);
    filter.setUint8(index * 8 + 3, no);
    filter.setUint32(index * 8 + 4, value, true);
  });
  const header = new DataView(new ArrayBuffer(16));
  header.setUint16(0, program.length, true);
  header.setBigUint64(8, BigInt(ptr(filter)), true);
  const [noNewPrivs, seccomp, modeFilter] = [38, 22, 2];
  if (prctl(noNewPrivs, 1, 0, 0, 0) !== 0 || prctl(seccomp, modeFilter, ptr(header), 0, 0) !== 0) {
    throw new Error("no seccomp filter");
  }
}

const [map = "1", ...denied] = process.argv.slice(2);
if (denied.includes("harden")) {
  native.cprg_harden();
}
const [enosys, eperm] = [38, 1];
denySystemCalls(
  denied.filter((name) => /^\d+$/.test(name)).map(Number),
  denied.includes("eperm") ? eperm : enosys,
);

const host = temporaryDirectory();
const steps = [
  ...minimalSteps,
  { op: op.bind, target: "/dev-all", source: "/dev", flags: 1 },
  { op: op.bind, target: "/mnt dir/x", source: host, flags: 3 },
];
const before = prctl(3, 0, 0, 0, 0);
{
  using sandbox = Sandbox.open({
    map: Number(map),
    plan: { ...minimalPlan, idMap: Number(map), steps },
  });
  const status = sandbox.sh("cat /proc/self/status").out;
  const field = (name: string): string | undefined =>
    new RegExp(`^${name}:\\s*(.*)$`, "m").exec(status)?.[1];
  const mounts = sandbox
    .run(["/bin/cat", "/proc/self/mountinfo"])
    .out.trimEnd()
    .split("\n")
    .map((line) => line.split(" "))
    .map((fields) => `${fields[4]} ${fields[5]?.replace(/,(relatime|noatime)/, "")}`);
  process.stdout.write(
    `${JSON.stringify({
      uid: field("Uid"),
      gid: field("Gid"),
      caps: ["Inh", "Prm", "Eff", "Bnd", "Amb"].map((set) => Number(field(`Cap${set}`))),
      noNewPrivs: field("NoNewPrivs"),
      exit: sandbox.sh("exit 7").report.code,
      id: sandbox.sh("id -u; stat -c %u:%g /workspace /tmp").out,
      nested: sandbox.run(["/usr/bin/unshare", "-U", "true"]).report.code,
      fds: sandbox.sh("ls /proc/self/fd").out,
      unpacked: sandbox.unpack(
        "/workspace/t",
        encodeArchive([
          { type: "directory", path: "d" },
          { type: "file", path: "d/f", content: "x" },
        ]),
      ).err,
      merged: sandbox.unpack(
        "/workspace/t",
        encodeArchive([{ type: "file", path: "d/f", content: "y" }]),
        { merge: true },
      ).err,
      packed: sandbox.pack("/workspace/t").report.err,
      acpi: sandbox.sh("ls -A /proc/acpi").out,
      touch: sandbox
        .sh("touch /usr/x /dev-all/x '/mnt dir/x/y' /proc/sys/kernel/x 2>&1 | wc -l")
        .out.trim(),
      mounts,
      // Only root may look into a process that is not dumpable.
      initFds: process.getuid?.() === 0 ? readdirSync(`/proc/${sandbox.pid}/fd`).length : null,
      hostname: sandbox.run(["/bin/hostname"]).out.trim(),
      dumpable: [before, prctl(3, 0, 0, 0, 0)],
    })}\n`,
  );
}
removeTemporaryDirectories();
