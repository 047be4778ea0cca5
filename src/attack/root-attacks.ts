/** Attacks on the root: reading and changing what is the host's, and leaving something behind. */

import { closeSync, existsSync, openSync, readdirSync, readSync, statSync } from "node:fs";
import { type Attack, broken, defineAttack, held, verdict } from "./attack.ts";
import { processLink, readProcess } from "./host-process.ts";
import { javascript, nr } from "./javascript.ts";
import { STAGE_PREFIX } from "./stage.ts";

const WRITABLE = ["/dev/shm", "/home/agent", "/tmp", "/workspace"];

/** Walks everything outside /usr, and what the links of every /proc/PID lead to. */
const WALK = javascript(`
const token = [...host.nekot].reverse().join("");
const found = [];
let files = 0;
let left = 300000;
const search = (path) => {
  files += 1;
  try { if (fs.readFileSync(path).includes(token)) found.push(path); } catch {}
};
const walk = (top, skip) => {
  const stack = [top];
  while (stack.length > 0 && left > 0) {
    const directory = stack.pop();
    let entries = [];
    try { entries = fs.readdirSync(directory, { withFileTypes: true }); } catch { continue; }
    for (const entry of entries) {
      left -= 1;
      const path = directory === "/" ? "/" + entry.name : directory + "/" + entry.name;
      if (entry.name.startsWith(${JSON.stringify(STAGE_PREFIX)})) found.push(path);
      if (entry.isDirectory()) { if (!skip.includes(path)) stack.push(path); }
      // Where a device is bound the directory still says "file".
      else if (entry.isFile()) { try { const status = fs.lstatSync(path); if (status.isFile() && status.size <= 1 << 20) search(path); } catch {} }
    }
  }
};
walk("/", ["/usr", "/proc", "/lib", "/lib32", "/lib64", "/bin", "/sbin"]);
const own = fs.statSync("/");
const isElsewhere = (path) => {
  try { const there = fs.statSync(path); return there.isDirectory() && there.dev !== own.dev; } catch { return false; }
};
for (const pid of fs.readdirSync("/proc").filter((name) => /^\\d+$/.test(name))) {
  for (const name of ["environ", "cmdline", "maps", "mountinfo", "cgroup"]) search("/proc/" + pid + "/" + name);
  const doors = ["root", "cwd"].map((name) => "/proc/" + pid + "/" + name);
  try { doors.push(...fs.readdirSync("/proc/" + pid + "/fd").map((fd) => "/proc/" + pid + "/fd/" + fd)); } catch {}
  for (const door of doors) if (isElsewhere(door) && !door.includes("/cwd")) walk(door, ["/proc/" + pid + "/root/usr", "/proc/" + pid + "/root/proc"]);
}
report({ found: found.slice(0, 20), files });
`);

const REACH = javascript(`
const ways = ["", "/proc/self/root", "/proc/1/root", "/../../..", "/proc/1/cwd/../../..", "/proc/self/cwd/../../.."];
const done = [];
for (const path of host.canaries) {
  for (const way of ways) {
    const there = way + path;
    const tries = {
      read: () => fs.readFileSync(there),
      write: () => fs.writeFileSync(there, "changed", { flag: "r+" }),
      rename: () => fs.renameSync(there, there + "-moved"),
      remove: () => fs.unlinkSync(there),
      hardlink: () => fs.linkSync(there, "/workspace/link-" + done.length),
      chmod: () => fs.chmodSync(there, 0o777),
      through: () => { try { fs.unlinkSync("/workspace/to"); } catch {} fs.symlinkSync(there, "/workspace/to"); fs.readFileSync("/workspace/to"); },
    };
    for (const [name, act] of Object.entries(tries)) if (attempt(act) === "done") done.push(name + " " + there);
  }
}
report({ done, tried: host.canaries.length * ways.length * 7 });
`);

/** Only ever about the sandbox's own process 1. */
const INIT_SCORE = "/proc/1/oom_score_adj";

const WRITE_EVERYWHERE = javascript(`
const writable = [];
let directories = 0;
// Beneath /usr is one mount, whose flags another attack reads: its upper directories will do.
const isDeep = (path) => path.startsWith("/usr/") && path.split("/").length > 4;
const stack = ["/"];
while (stack.length > 0 && directories < 20000) {
  const directory = stack.pop();
  directories += 1;
  const probe = (directory === "/" ? "" : directory) + "/${STAGE_PREFIX}probe";
  if (attempt(() => { fs.writeFileSync(probe, "x"); }) === "done") { writable.push(directory); fs.unlinkSync(probe); }
  let entries = [];
  try { entries = fs.readdirSync(directory, { withFileTypes: true }); } catch { continue; }
  for (const entry of entries) {
    const path = (directory === "/" ? "" : directory) + "/" + entry.name;
    if (entry.isDirectory() && path !== "/proc" && !isDeep(path)) stack.push(path);
  }
}
const special = ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/vm/overcommit_memory",
  "/proc/sysrq-trigger", "${INIT_SCORE}", "/proc/irq/default_smp_affinity", "/proc/kcore", "/dev/mem", "/dev/kmsg",
  "/etc/passwd", "/etc/ld.so.cache", process.execPath, "/proc/self/exe"];
// What is masked opens, and is /dev/null under another name.
const nothing = fs.statSync("/dev/null").rdev;
const opened = special.filter((path) => attempt(() => {
  const fd = fs.openSync(path, "r+");
  const { rdev } = fs.fstatSync(fd);
  fs.closeSync(fd);
  if (rdev === nothing) throw new Error("masked");
}) === "done");
report({ writable: writable.sort(), opened, directories });
`);

const SECRETS_OF_PROC = [
  "kcore",
  "kmsg",
  "keys",
  "key-users",
  "timer_list",
  "sched_debug",
  "interrupts",
];

const READ_PROC = javascript(`
const read = {};
for (const name of ${JSON.stringify(SECRETS_OF_PROC)}) {
  try {
    const fd = fs.openSync("/proc/" + name, "r");
    const bytes = Buffer.alloc(64);
    read[name] = fs.readSync(fd, bytes, 0, 64, null);
  } catch {}
}
const present = ["/sys", "/boot", "/root", "/mnt", "/media", "/srv", "/etc/shadow", "/etc/machine-id",
  "/etc/ssh", "/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock",
  "/run/dbus/system_bus_socket", "/run/systemd", "/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/vda", "/dev/kvm", "/dev/tty0", "/dev/fuse"]
  .filter((path) => fs.existsSync(path));
try {
  const terminals = fs.readdirSync("/dev/pts").filter((name) => name !== "ptmx");
  present.push(...terminals.map((name) => "/dev/pts/" + name));
} catch {}
report({ read, present });
`);

const MAKE_DEVICES = javascript(`
const made = [];
for (const [name, mode, device] of [["mem", 0o20666, 0x101], ["sda", 0o60666, 0x800], ["kmsg", 0o20666, 0x10b]]) {
  const path = Buffer.from("/workspace/" + name + "\\0");
  if (call(${nr("mknodat")}, -100, address(path), mode, device) === 0) made.push(name);
}
report({ made });
`);

const PLANT_ARTIFACTS = javascript(`
fs.mkdirSync("/workspace/out/deep", { recursive: true });
fs.writeFileSync("/workspace/out/honest", "honest");
const [canary] = host.canaries;
fs.symlinkSync(canary, "/workspace/out/link");
fs.symlinkSync("/", "/workspace/out/everything");
fs.symlinkSync("../../../../../.." + canary, "/workspace/out/deep/relative");
const fifo = Buffer.from("/workspace/out/fifo\\0");
report({ fifo: call(${nr("mknodat")}, -100, address(fifo), 0o10666, 0) });
released();
`);

const LEAVE_BEHIND = javascript(`
const left = ${JSON.stringify(WRITABLE)}.filter((directory) =>
  attempt(() => fs.writeFileSync(directory + "/${STAGE_PREFIX}left", "left")) === "done");
report({ left });
`);

const LOOK_FOR_LEFT = javascript(`
report({ found: ${JSON.stringify(WRITABLE)}.filter((directory) => fs.existsSync(directory + "/${STAGE_PREFIX}left")) });
`);

/** The attacks. */
export const ROOT_ATTACKS: readonly Attack[] = [
  defineAttack({
    id: "root.walk",
    layer: "root",
    needs: ["root"],
    title: "read every file that can be reached, through /proc/*/root, cwd and fd too",
    program: WALK,
    judge: (seen) => {
      const { found, files } = seen.report();
      const list = found as readonly string[];
      if (list.length > 0) return broken(`found a canary at ${list.join(", ")}`);
      // A walk that saw nothing shows nothing.
      if (Number(files) < 10) return broken(`only ${files} files were read`);
      return held(`none of ${seen.stage.canaries.length} canaries in ${files} files`);
    },
  }),
  defineAttack({
    id: "root.reach",
    layer: "root",
    needs: ["root"],
    title: "open, change, move, link and remove files of the host by their path",
    program: REACH,
    judge: (seen) => {
      const { done, tried } = seen.report();
      const damage = seen.stage.canaryDamage();
      return verdict(
        [...(done as readonly string[]), ...damage.map((path) => `the host's ${path} changed`)],
        `${tried} ways refused; the host's files are as they were`,
      );
    },
  }),
  defineAttack({
    id: "root.write",
    layer: "root",
    needs: ["root"],
    title: "write into every directory, and to devices, kernel settings and the executable itself",
    program: WRITE_EVERYWHERE,
    judge: (seen) => {
      const { writable, opened, directories } = seen.report();
      const others = (writable as readonly string[]).filter((path) => !WRITABLE.includes(path));
      const onHost = others.filter((path) => existsSync(`${path}/${STAGE_PREFIX}probe`));
      const list = [...others, ...(opened as readonly string[]), ...onHost].filter(
        // A sandbox of one id has a process 1 of its own id.
        (path) => path !== INIT_SCORE || seen.stage.engine.layers["identity"] === true,
      );
      if (list.length > 0) return broken(`could write ${list.slice(0, 10).join(", ")}`);
      return held(`of ${directories} directories only the sandbox's own four took a file`);
    },
  }),
  defineAttack({
    id: "root.mounts",
    layer: "root",
    needs: ["root"],
    title: "find a mount that honours setuid bits or devices, or can be written",
    program: javascript("released();"),
    watch: ({ programs }) => ({
      mounts: readProcess(programs[0]?.pid ?? 0, "mountinfo"),
      ours: processLink(process.pid, "ns/mnt"),
      theirs: processLink(programs[0]?.pid ?? 0, "ns/mnt"),
    }),
    judge: ({ watched: { mounts, ours, theirs } }) => {
      if (mounts === null || ours === theirs) return broken("it has the host's mounts");
      const bad = mounts.trim().split("\n").flatMap(mountFault);
      return verdict(bad, `${mounts.trim().split("\n").length} mounts, each as it must be`);
    },
  }),
  defineAttack({
    id: "root.proc",
    layer: "root",
    needs: ["root"],
    title: "read the kernel's secrets in /proc; find the host's sockets, devices and key files",
    program: READ_PROC,
    judge: (seen) => {
      const { read, present } = seen.report();
      const readable = Object.entries(read as Readonly<Record<string, number>>)
        .filter(([, bytes]) => bytes > 0)
        .map(([name]) => `/proc/${name}`);
      const list = [...readable, ...(present as readonly string[])];
      return verdict(list.length === 0 ? [] : [`sees ${list.join(", ")}`], "all masked or absent");
    },
  }),
  defineAttack({
    id: "root.devices",
    layer: "root",
    needs: ["root"],
    title: "make device files for memory, a disk and the kernel's log",
    program: MAKE_DEVICES,
    judge: (seen) => {
      const made = seen.report()["made"] as readonly string[];
      return verdict(made.length === 0 ? [] : [`made ${made.join(", ")}`], "mknod refused");
    },
  }),
  defineAttack({
    id: "root.artifacts",
    layer: "root",
    needs: ["root"],
    title: "leave links to files of the host and a fifo where the host collects results",
    program: PLANT_ARTIFACTS,
    watch: async ({ exec, lease }) => {
      exec.kill("user", { graceMs: 0 });
      await exec.outcome;
      const artifacts = await lease.artifacts();
      const contents: string[] = [];
      for (const artifact of artifacts) {
        for await (const bytes of artifact.read()) contents.push(Buffer.from(bytes).toString());
      }
      return { paths: artifacts.map(({ path }) => path), content: contents.join("") };
    },
    judge: ({ stage, watched: { paths, content } }) => {
      if (content.includes(stage.token)) return broken("the host handed out a canary");
      const isRight = paths.length === 1 && paths[0] === "honest" && content === "honest";
      return isRight ? held("only the honest file was collected") : broken(`collected ${paths}`);
    },
  }),
  defineAttack({
    id: "root.leave",
    layer: "root",
    needs: ["root"],
    title: "leave files for the next sandbox, and on the host",
    program: LEAVE_BEHIND,
    after: { program: LOOK_FOR_LEFT, where: "new" },
    judge: (seen) => {
      const left = seen.report()["left"] as readonly string[];
      const found = seen.reportAfter()["found"] as readonly string[];
      const onHost = ["/tmp", "/dev/shm", "/home/agent", "/workspace"].filter(
        (place) => existsSync(place) && readdirSync(place).includes(`${STAGE_PREFIX}left`),
      );
      if (left.length !== WRITABLE.length) return broken(`could only write ${left}`);
      return verdict(
        [...found, ...onHost].map((place) => `${place} has it`),
        "gone with the sandbox",
      );
    },
  }),
  defineAttack({
    id: "root.executable",
    layer: "root",
    needs: ["root"],
    title: "overwrite the executable that it runs on, which is the host's",
    program: javascript(`
const tried = ["/proc/self/exe", process.execPath, "/proc/1/exe"].flatMap((path) =>
  ["r+", "a", "w"].map((flags) => attempt(() => fs.closeSync(fs.openSync(path, flags)))));
tried.push(attempt(() => fs.unlinkSync(process.execPath)), attempt(() => fs.chmodSync(process.execPath, 0o4777)));
report({ done: tried.filter((answer) => answer === "done").length });
released();
`),
    watch: () => headOfExecutable(),
    judge: (seen) => {
      const isSame = seen.watched === headOfExecutable();
      if (seen.report()["done"] !== 0 || !isSame) return broken("it could be changed");
      return held("refused; size, time and content are as they were");
    },
  }),
];

/** What is wrong with one line of mountinfo (proc_pid_mountinfo(5)). */
function mountFault(line: string): string[] {
  const [, , , , target = "", options = ""] = line.split(" ");
  const flags = options.split(",");
  const isDevice = /^\/(dev|proc)\//.test(target);
  // Terminals of its own: a devpts of the host would show the host's, which `root.proc` looks for.
  const isTerminals = target === "/dev/pts" && line.includes(" - devpts ");
  const mayWrite = isTerminals || [...WRITABLE, "/proc"].includes(target);
  return [
    ...(flags.includes("nosuid") ? [] : [`${target} honours setuid`]),
    ...(flags.includes("nodev") || isDevice ? [] : [`${target} honours devices`]),
    ...(flags.includes("ro") || mayWrite ? [] : [`${target} can be written`]),
  ];
}

/** What tells one executable from another: all of it is too much to read twice. */
function headOfExecutable(): string {
  const { size, mtimeMs, ctimeMs, ino } = statSync(process.execPath);
  const head = Buffer.alloc(4096);
  const fd = openSync(process.execPath, "r");
  try {
    readSync(fd, head);
  } finally {
    closeSync(fd);
  }
  return `${size} ${mtimeMs} ${ctimeMs} ${ino} ${Bun.hash(head)}`;
}
