import { expect, test } from "bun:test";
import { prefersNdjson } from "../../../src/http/accept.ts";

test.each([
  [undefined, false],
  ["", false],
  ["*/*", false],
  ["application/json", false],
  ["text/html", false],
  ["application/x-ndjson", true],
  ["APPLICATION/X-NDJSON; charset=utf-8", true],
  ["application/x-ndjson, application/json", true],
  ["application/json, application/x-ndjson", false],
  ["application/json;q=0.5, application/x-ndjson", true],
  ["application/x-ndjson;q=0.5, */*", false],
  ["application/x-ndjson;q=0", false],
  ["application/x-ndjson;q=x", false],
])("prefersNdjson() of %p is %p", (header, wanted) => {
  expect(prefersNdjson(header)).toBe(wanted);
});
