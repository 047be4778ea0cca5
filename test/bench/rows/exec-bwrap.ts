// A new sandbox for /bin/true against bubblewrap (Debian's), told to build what it can of the same.

import { openBenchEngine } from "../engine.ts";
import { startFloor } from "../floor.ts";
import { type Row, sampleInTurn, timed, toRow } from "../row.ts";
import type { BenchContext } from "../run.ts";

const SAMPLES = 100;

/** bwrap(1): all namespaces, read-only runtime, own proc, dev and tmpfs; no limits, no own ids. */
const bwrap = [
  ...["/usr/bin/bwrap", "--unshare-all", "--new-session", "--die-with-parent"],
  ...["--hostname", "sandbox", "--cap-drop", "ALL"],
  ...[
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/sbin",
    "/sbin",
  ],
  ...["--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"],
  ...["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/workspace"],
  ...["--tmpfs", "/home", "--dir", "/etc", "--chdir", "/workspace"],
  "/bin/true",
];

export async function execBwrap({ floorPath }: BenchContext): Promise<Row> {
  await using bench = await openBenchEngine();
  using floor = startFloor(floorPath, ["run", ...bwrap]);
  const samples = await sampleInTurn(
    { ours: async () => await timed(bench.runTrue), reference: floor.sample },
    SAMPLES,
  );
  const what = "bwrap of /bin/true / sandboxed /bin/true, opened to removed";
  return toRow({ id: "exec-bwrap", what, unit: "ms", bar: { sign: ">=", value: 4 } }, samples);
}
