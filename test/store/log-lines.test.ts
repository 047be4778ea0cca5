import { expect, test } from "bun:test";
import {
  APPEND_DRAFTS_MAX,
  emptyLog,
  linkDrafts,
  READ_BYTES_MAX,
  READ_LINES_MAX,
  readBounds,
} from "../../src/store/log-lines.ts";
import { stdout } from "./samples.ts";

test("readBounds() cuts what is asked to what a read may give", () => {
  const most = { limit: READ_LINES_MAX, maxBytes: READ_BYTES_MAX };
  expect(readBounds(1, { limit: 1e9, maxBytes: 1e12 })).toEqual(most);
  const endless = { limit: Number.POSITIVE_INFINITY, maxBytes: Number.POSITIVE_INFINITY };
  expect(readBounds(1, endless)).toEqual(most);
  expect(readBounds(1, { limit: 2.9, maxBytes: 7 })).toEqual({ limit: 2, maxBytes: 7 });
  for (const odd of [0, -5, Number.NaN]) {
    expect(readBounds(1, { limit: odd, maxBytes: odd })).toEqual({ limit: 1, maxBytes: 0 });
  }
});

test("linkDrafts() takes so many drafts and no more, and changes nothing", () => {
  const head = emptyLog("exec:a");
  const before = structuredClone(head);
  const drafts = Array.from({ length: APPEND_DRAFTS_MAX }, () => stdout(""));
  expect(linkDrafts("exec:a", head, drafts).lines).toHaveLength(APPEND_DRAFTS_MAX);
  expect(() => linkDrafts("exec:a", head, [...drafts, stdout("")])).toThrow("at most");
  expect(structuredClone(head)).toEqual(before);
});
