// One virtual machine from its start to its end. Whatever it does, it ends: by itself, when its time
// is over, or when it has said nothing for too long; and how it ended is known.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, openSync, readFileSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import type { Ground } from "./grounds.ts";
import type { Disks } from "./image.ts";
import { parseReport, type ReportLine } from "./report.ts";

const BOOT_TIMEOUT_MS = 75 * 60_000;
/** Longest without a new line of the report: a file has at most this. */
const SILENCE_TIMEOUT_MS = 20 * 60_000;
const LOOK_MS = 500;
const MEMORY_MB = 4096;

const QEMU = {
  x86_64: {
    program: "qemu-system-x86_64",
    options: ["-cpu", "max"],
    console: "ttyS0",
  },
  aarch64: {
    program: "qemu-system-aarch64",
    // Pointer authentication with the architected cipher is most of the time under emulation.
    options: ["-machine", "virt", "-cpu", "max,pauth-impdef=on"],
    console: "ttyAMA0",
  },
} as const;

/** How a machine ended. */
export interface Ended {
  readonly lines: readonly ReportLine[];
  readonly durationMs: number;
  /** Why it did not come to its end, or null. */
  readonly problem: string | null;
  /** What the console printed. */
  readonly consolePath: string;
}

/** Boots a ground and waits for its end. */
export async function runMachine(
  ground: Ground,
  options: {
    readonly disks: Disks;
    readonly folder: string;
    readonly files: string;
    readonly tests: string;
    onLine(line: ReportLine): void;
  },
): Promise<Ended> {
  const startedMs = performance.now();
  const reportPath = join(options.folder, `${ground.name}.report`);
  const consolePath = join(options.folder, `${ground.name}.log`);
  for (const path of [reportPath, consolePath]) rmSync(path, { force: true });
  const output = openSync(consolePath, "w");
  const { program } = QEMU[ground.arch];
  const child = spawn(program, qemuOptions(ground, { ...options, reportPath }), {
    stdio: ["ignore", output, output],
  });
  closeSync(output);
  const ended = once(child, "exit").catch((error: unknown) => [String(error)]);
  let seen = 0;
  let changedMs = performance.now();
  let stopped: string | null = null;
  const look = (): void => {
    const lines = existsSync(reportPath) ? parseReport(readFileSync(reportPath, "utf8")) : [];
    for (const line of lines.slice(seen)) options.onLine(line);
    if (lines.length > seen) changedMs = performance.now();
    seen = Math.max(seen, lines.length);
    const now = performance.now();
    if (now - startedMs > BOOT_TIMEOUT_MS) stopped = `not done after ${minutes(BOOT_TIMEOUT_MS)}`;
    else if (now - changedMs > SILENCE_TIMEOUT_MS) {
      stopped = `silent for ${minutes(SILENCE_TIMEOUT_MS)}`;
    }
    if (stopped !== null) child.kill("SIGKILL");
  };
  const timer = setInterval(look, LOOK_MS);
  const kill = (): void => void child.kill("SIGKILL");
  process.once("exit", kill);
  const [code] = (await ended) as [number | string | null];
  process.off("exit", kill);
  clearInterval(timer);
  look();
  const lines = existsSync(reportPath) ? parseReport(readFileSync(reportPath, "utf8")) : [];
  return {
    lines,
    durationMs: performance.now() - startedMs,
    problem: problemOf({ stopped, code, lines, consolePath }),
    consolePath,
  };
}

function minutes(ms: number): string {
  return `${Math.round(ms / 60_000)} minutes`;
}

function qemuOptions(
  ground: Ground,
  {
    disks,
    files,
    tests,
    reportPath,
  }: {
    readonly disks: Disks;
    readonly files: string;
    readonly tests: string;
    readonly reportPath: string;
  },
): string[] {
  const { options, console } = QEMU[ground.arch];
  const append = [
    `console=${console} quiet panic=-1 oops=panic`,
    // No flush of the translations at every system call: what the CPUs leak to each other is not
    // what is tested here.
    "mitigations=off",
    // A host that is busy lets the timer look broken while the kernel starts.
    "no_timer_check",
    // Namespaces come and go all the time, and each waits for both CPUs, which are seldom both there.
    "rcupdate.rcu_expedited=1",
    `ground.cgroup=${ground.cgroup} ground.user=${ground.user} ground.files=${files}`,
    // One word of the command line, whatever is in it.
    `ground.tests=${encodeURIComponent(tests)}`,
  ];
  const disk = (path: string, mode: string): string[] => [
    "-drive",
    `file=${path},format=raw,if=virtio,${mode}`,
  ];
  return [
    ...options,
    ...["-accel", "tcg,thread=multi", "-smp", "2", "-m", String(MEMORY_MB)],
    ...["-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio", "-nic", "none"],
    ...["-kernel", disks.kernel, "-initrd", disks.ramdisk, "-append", append.join(" ")],
    // What is written to the root goes to a temporary file and is gone afterwards.
    ...disk(disks.root, "snapshot=on"),
    ...disk(disks.project, "readonly=on"),
    ...["-device", "virtio-serial-pci", "-chardev", `file,id=report,path=${reportPath}`],
    ...["-device", "virtserialport,chardev=report,name=report"],
  ];
}

/** Why a machine did not come to its end, with what it was doing. */
export function problemOf(ended: {
  readonly stopped: string | null;
  readonly code: number | string | null;
  readonly lines: readonly ReportLine[];
  readonly consolePath: string;
}): string | null {
  if (ended.lines.at(-1)?.type === "end") return null;
  const last = ended.lines.findLast((line) => line.type === "start" || line.type === "file");
  const doing = last === undefined ? "before the first file" : `at ${last.file}`;
  if (ended.stopped !== null) return `${ended.stopped} ${doing}`;
  const panic = panicOf(ended.consolePath);
  if (panic !== null) return `${panic} ${doing}`;
  return `ended with ${ended.code} ${doing}`;
}

/** The kernel's own last words. */
function panicOf(consolePath: string): string | null {
  if (!existsSync(consolePath) || statSync(consolePath).size === 0) return null;
  return /Kernel panic[^\r\n]*/.exec(readFileSync(consolePath, "utf8"))?.[0] ?? null;
}
