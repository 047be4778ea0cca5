// The executable in a podman container: with default settings it says what it lacks and which flag
// gives it; with those flags it works. None of them is --privileged.

import { afterAll, beforeAll, expect } from "bun:test";
import { requireHost } from "../helpers/host.ts";
import { type Containers, makeContainers, whyNoContainers } from "./container.ts";
import { layerOf, layersOf } from "./doctor-report.ts";

const reason = await whyNoContainers();
const host = requireHost({
  root: true,
  userns: true,
  cgroup: true,
  programs: reason === null ? [] : [reason],
});

const CPRG = "/opt/cprg";
const ANSWER = [CPRG, "run", "-c", "print(6*7)"];
const VIOLATION = "import ctypes; print(ctypes.CDLL(None).ptrace(0, 0, 0, 0))";

/** Namespaces and mounts; groups of its own; a /proc of its own, which a masked one forbids. */
const NAMESPACES = ["--cap-add", "SYS_ADMIN"];
const GROUPS = ["--volume", "/sys/fs/cgroup:/sys/fs/cgroup:rw"];
const PROC = ["--security-opt", "unmask=/proc/*"];
const ENOUGH = [...NAMESPACES, ...GROUPS, ...PROC];
/** And violations with a name. */
const NO_OUTER_FILTER = ["--security-opt", "seccomp=unconfined"];

host.describe("in a podman container", () => {
  let containers: Containers;
  beforeAll(() => {
    containers = makeContainers();
  });
  afterAll(() => containers.remove());

  host.test("with default settings: it names what it lacks, and the flag", async () => {
    const run = await containers.run([], ANSWER);
    expect(run).toMatchObject({ code: 125, out: "" });
    expect(run.err).toMatch(/^ +hint: .+$/m);

    const doctor = await containers.run([], [CPRG, "doctor", "--json"]);
    expect(doctor.code).toBe(1);
    expect(layerOf(doctor.out, "cgroup")).toMatchObject({
      ok: false,
      detail: expect.stringContaining("read-only"),
      fix: expect.stringContaining("/sys/fs/cgroup:/sys/fs/cgroup:rw"),
    });
    const lacking = layersOf(doctor.out).filter((layer) => !layer.ok);
    expect(lacking.map(({ name }) => name)).toContain("sandbox");
    for (const { fix } of lacking) expect(fix?.length).toBeGreaterThan(0);
  });

  host.test("of the capabilities every one that is missing is in the fix", async () => {
    const without = ["--cap-drop", "all", ...ENOUGH, "--cap-add", "SETUID"];
    const doctor = await containers.run(without, [CPRG, "doctor", "--json"]);
    expect(layerOf(doctor.out, "capabilities")).toMatchObject({
      ok: false,
      detail: "lacks CAP_DAC_OVERRIDE, CAP_SETGID",
      fix: "podman run --cap-add DAC_OVERRIDE --cap-add SETGID",
    });
  });

  host.test(
    "root that may not mount a /proc: run names the flags, serve does not start",
    async () => {
      const options = ["--env", "CPRG_ALLOW_MISSING=cgroup"];
      for (const command of [ANSWER, [CPRG, "serve"]]) {
        const ended = await containers.run(options, command);
        expect(ended.code).not.toBe(0);
        expect(ended.err).toContain("no /proc may be mounted, because Podman covers parts");
        expect(ended.err).toMatch(/^ +hint: podman run .*seccomp=unconfined .*unmask=\/proc/m);
      }
    },
  );

  host.test(
    "a user with default settings: it names the two flags, and works with them",
    async () => {
      const user = ["--user", "1000", "--env", "CPRG_RUN_DIR=/dev/shm/run"];
      const run = await containers.run(user, ANSWER);
      expect(run).toMatchObject({ code: 125, out: "" });
      const flags = [...NO_OUTER_FILTER, "--security-opt", "'unmask=/proc/*'"];
      expect(run.err).toContain(`hint: podman run ${flags.join(" ")};`);
      const doctor = await containers.run(user, [CPRG, "doctor", "--json"]);
      expect(layerOf(doctor.out, "sandbox")?.fix?.split("\n").at(-1)).toBe(
        `podman run ${flags.join(" ")}`,
      );
      const given = [...user, ...NO_OUTER_FILTER, ...PROC];
      expect(await containers.run(given, ANSWER)).toEqual({ code: 0, out: "42\n", err: "" });
    },
  );

  for (const { lacks, options } of [
    { lacks: "namespaces", options: [...GROUPS, ...PROC] },
    { lacks: "groups", options: [...NAMESPACES, ...PROC] },
    { lacks: "a /proc that is not masked", options: [...NAMESPACES, ...GROUPS] },
  ]) {
    host.test(`without ${lacks} no program runs`, async () => {
      const run = await containers.run(options, ANSWER);
      expect(run).toMatchObject({ code: 125, out: "" });
      expect(run.err).toMatch(/^ +hint: .+$/m);
    });
  }

  host.test("groups may be given up instead", async () => {
    const options = [...NAMESPACES, ...PROC, "--env", "CPRG_ALLOW_MISSING=cgroup"];
    expect(await containers.run(options, ANSWER)).toEqual({ code: 0, out: "42\n", err: "" });
  });

  host.test("with the three flags it works; violations are fatal without a name", async () => {
    expect(await containers.run(ENOUGH, ANSWER)).toEqual({ code: 0, out: "42\n", err: "" });
    const command = [CPRG, "run", "--json", "-c", VIOLATION];
    const ended = await containers.run(ENOUGH, command);
    expect(JSON.parse(ended.out)).toMatchObject({ reason: "seccomp_violation", stdout: "" });
    const doctor = await containers.run(ENOUGH, [CPRG, "doctor", "--json"]);
    expect(doctor.code).toBe(0);
    expect(layerOf(doctor.out, "seccomp")).toMatchObject({
      ok: false,
      required: false,
      fix: expect.stringContaining("seccomp=unconfined"),
    });
  });

  host.test("without the container's filter no capability is needed", async () => {
    const options = [...GROUPS, ...PROC, ...NO_OUTER_FILTER];
    expect(await containers.run(options, ANSWER)).toEqual({ code: 0, out: "42\n", err: "" });
  });

  host.test("with all of them nothing is missing", async () => {
    const options = [...ENOUGH, ...NO_OUTER_FILTER];
    expect(await containers.run(options, ANSWER)).toEqual({ code: 0, out: "42\n", err: "" });
    const doctor = await containers.run(options, [CPRG, "doctor", "--json"]);
    expect(doctor.code).toBe(0);
    const lacking = layersOf(doctor.out).filter((layer) => !layer.ok && layer.required);
    expect(lacking).toEqual([]);
    expect(layerOf(doctor.out, "seccomp")).toMatchObject({ ok: true });
  });
});
