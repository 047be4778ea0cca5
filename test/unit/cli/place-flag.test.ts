import { expect, test } from "bun:test";
import { placementField } from "../../../src/cli/place-flag.ts";

test("--place names labels, or any worker; without it nothing is sent", () => {
  expect(placementField([])).toEqual({});
  expect(placementField(["any"])).toEqual({ placement: { labels: {} } });
  const labels = { gpu: "a100", zone: "a=b" };
  expect(placementField(["gpu=a100", "zone=a=b"])).toEqual({ placement: { labels } });
  expect(placementField(["any", "gpu=a100"])).toEqual({ placement: { labels: { gpu: "a100" } } });
  expect(() => placementField(["gpu"])).toThrow("--place");
});
