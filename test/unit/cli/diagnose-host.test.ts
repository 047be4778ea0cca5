import { expect, test } from "bun:test";
import { reportText } from "../../../src/cli/diagnose-host.ts";
import { paintFor } from "../../../src/cli/output.ts";
import { memoryTerminal } from "./memory-terminal.ts";

test("reportText() tells missing from weaker, and lists every fix", () => {
  const layer = { isRequired: true, detail: "d", fix: null };
  const report = {
    kernel: "6.1",
    arch: "x64",
    uid: 1000,
    cgroup: null,
    distribution: "Debian",
    container: "podman" as const,
    layers: [
      { ...layer, name: "root", ok: false, fix: "Start it as root" },
      { ...layer, name: "swap", ok: false, isRequired: false, fix: "Turn it off\x1b[2J" },
      { ...layer, name: "unit", ok: false, isRequired: false, fix: "[Service]\nDelegate=yes" },
      { ...layer, name: "kill", ok: false, isRequired: false },
      { ...layer, name: "cgroup", ok: true },
    ],
  };
  const { stdout } = memoryTerminal();
  expect(
    reportText(report, paintFor(stdout, {})),
  ).toBe(`Debian, kernel 6.1 x64, uid 1000, cgroup none, in podman

STATE    LAYER   FOUND
missing  root    d
weaker   swap    d
weaker   unit    d
weaker   kill    d
ok       cgroup  d

To mend it:
  root: Start it as root
  swap: Turn it off\\x1b[2J
  unit:
    [Service]
    Delegate=yes
`);
});
