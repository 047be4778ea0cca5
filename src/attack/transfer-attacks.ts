/** Attacks on files that go in and out while a program is at work where they go. */

import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ExecLease } from "../provider/contract.ts";
import { type Attack, defineAttack, type Scene, verdict } from "./attack.ts";
import { javascript } from "./javascript.ts";
import { STAGE_PREFIX } from "./stage.ts";

/** Rounds of transfers while the program turns directories into links and back. */
const ROUNDS = 15;
const WRITTEN = "written by the host";

const FLIP = javascript(
  `
const [canary] = host.canaries;
const directory = canary.slice(0, canary.lastIndexOf("/"));
fs.mkdirSync("/workspace/out", { recursive: true });
fs.symlinkSync(canary, "/workspace/file");
fs.symlinkSync(directory, "/workspace/directory");
fs.symlinkSync(directory, "/workspace/out/everything");
released();
for (;;) {
  attempt(() => fs.symlinkSync(directory, "/workspace/out/flip"));
  attempt(() => fs.unlinkSync("/workspace/out/flip"));
  attempt(() => fs.mkdirSync("/workspace/out/flip"));
  attempt(() => fs.writeFileSync("/workspace/out/flip/canary", "honest"));
  attempt(() => fs.rmSync("/workspace/out/flip", { recursive: true }));
}
`,
  { ending: "cancel" },
);

/** Moves files both ways; what a race makes fail is no fault, only what arrives where it must not. */
async function transfer(lease: ExecLease, into: string): Promise<number> {
  let done = 0;
  const attempts = [
    () => lease.putFile("/workspace/file", Buffer.from(WRITTEN)),
    () => lease.putFile("/workspace/directory/canary", Buffer.from(WRITTEN)),
    () => lease.putFile("/workspace/out/flip/canary", Buffer.from(WRITTEN)),
    () => lease.download("/workspace/out", join(into, "out")),
    () => lease.download("/workspace/out/flip", join(into, "flip")),
  ];
  for (const attempt of attempts) {
    const isDone = await attempt().then(
      () => true,
      () => false,
    );
    if (isDone) done += 1;
  }
  return done;
}

async function transferAll({ stage, lease, exec }: Scene) {
  const into = mkdtempSync(join(tmpdir(), STAGE_PREFIX));
  try {
    // The end of its input sets the program going.
    await exec.closeInput();
    let done = 0;
    for (let round = 0; round < ROUNDS; round += 1) {
      done += await transfer(lease, join(into, String(round))).catch(() => 0);
    }
    return { done, leaked: filesWith(into, stage.token) };
  } finally {
    rmSync(into, { recursive: true, force: true });
  }
}

/** Regular files that hold a text; links are not followed. */
function filesWith(top: string, text: string): readonly string[] {
  return readdirSync(top, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((path) => readFileSync(path, "utf8").includes(text));
}

/** The attacks. */
export const TRANSFER_ATTACKS: readonly Attack[] = [
  defineAttack({
    id: "root.transfers",
    layer: "root",
    needs: ["root"],
    title: "turn directories into links to the host's while files are put in and taken out",
    program: FLIP,
    watch: transferAll,
    judge: ({ stage, watched: { done, leaked } }) => {
      const damage = stage.canaryDamage();
      const faults = [
        ...leaked.map((path) => `a canary came out as ${path}`),
        ...damage.map((path) => `the host's ${path} changed`),
        // Where nothing was moved nothing is shown.
        ...(done === 0 ? ["no file could be moved"] : []),
      ];
      return verdict(faults, `${done} transfers; no canary came out, and none was written`);
    },
  }),
];
