import { describe, expect, test } from "bun:test";
import { CprgError } from "../../../src/core/errors.ts";
import { openFilters } from "../../../src/sandbox/seccomp/filters.ts";
import { judgeSupport } from "../../../src/sandbox/seccomp/host-support.ts";

const ALL = "kill_process kill_thread trap errno user_notif trace log allow\n";
const FREE = "NoNewPrivs:\t0\nSeccomp:\t0\nSeccomp_filters:\t0\n";
const FILTERED = "NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n";

describe("judgeSupport()", () => {
  test.each([
    ["a kernel with notifications", ALL, FREE, "notify", null],
    ["a server under a filter", ALL, FILTERED, "kill", /seccomp=unconfined/],
    ["a kernel before 5.0", ALL.replace(" user_notif", ""), FREE, "kill", /Linux 5\.0/],
    ["a kernel without filters", null, FREE, null, /CPRG_SECCOMP=off/],
    ["a kernel before 4.14", "kill trap errno allow\n", FREE, null, /CPRG_SECCOMP=off/],
  ] as const)("%s", (_name, actions, status, mode, fix) => {
    const support = judgeSupport(actions, status);
    expect(support.mode).toBe(mode);
    if (fix === null) expect(support.fix).toBeNull();
    else expect(support.fix).toMatch(fix);
  });
});

describe("openFilters()", () => {
  test("has no programs where the layer is off, on any host", () => {
    const filters = openFilters({ isOn: false, allow: [] });
    expect(filters.mode).toBe(false);
    expect(filters.of("python")).toBeNull();
  });

  test("compiles each profile once, within what the kernel and init take", () => {
    let filters: ReturnType<typeof openFilters>;
    try {
      filters = openFilters();
    } catch (error) {
      // This host has no filters, and says so.
      expect(CprgError.is(error) && error.reason).toBe("NO_SECCOMP");
      return;
    }
    for (const language of [undefined, "python", "node", "typescript", "bash", "ruby"]) {
      const programs = filters.of(language);
      expect(programs).toBe(filters.of(language));
      expect(programs?.kill.length).toBeGreaterThan(0);
      expect(programs?.kill.length).toBeLessThanOrEqual(32_768);
      expect(programs?.notify === null).toBe(filters.mode !== "notify");
    }
    expect(filters.of()).toBe(filters.of("argv"));
    expect(filters.of("node")).not.toEqual(filters.of("argv"));
  });
});
