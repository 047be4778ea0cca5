import { describe, expect, test } from "bun:test";
import { type StopRequest, StopSwitch } from "../../../src/jobs/stop-switch.ts";

describe("StopSwitch", () => {
  test("keeps the first reason and the shortest grace, and tells a late listener", () => {
    const made = new StopSwitch();
    expect([made.request, made.signal.aborted]).toEqual([null, false]);
    made.stop({ reason: "user", graceMs: 2000 });
    const heard: StopRequest[] = [];
    made.listen((request) => heard.push(request));
    made.stop({ reason: "shutdown", graceMs: 500 });
    made.stop({ reason: "shutdown", graceMs: 9000 });
    expect(heard).toEqual([
      { reason: "user", graceMs: 2000 },
      { reason: "user", graceMs: 500 },
      { reason: "user", graceMs: 500 },
    ]);
    expect(made.signal.aborted).toBe(true);
  });
});
