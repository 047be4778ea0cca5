// Duties of `invoke`.

import { expect } from "bun:test";
import type { SandboxLease } from "../../src/provider/contract.ts";
import {
  BINARY,
  type ProviderCheck,
  rejection,
  sh,
  sha256,
  withLease,
} from "./sandbox-provider-check.ts";

/** Starts descendants in sessions of their own that write to a file for as long as they live. */
const BEATING =
  "for i in 1 2; do (setsid sh -c 'while :; do echo x >> beats; sleep 0.02; done' &); done; while :; do sleep 0.05; done";
/** Succeeds when nobody writes to the file any more. */
const IS_STILL =
  'test -s beats && a=$(wc -c < beats) && sleep 0.4 && test "$a" = "$(wc -c < beats)"';

/** Waits until the descendants have begun to write. */
async function untilBeating(lease: SandboxLease): Promise<void> {
  const waited = await sh(lease, "until test -s beats; do sleep 0.02; done");
  expect(waited.status).toBe(0);
}

/** All of them. */
export const INVOKE_CHECKS: readonly ProviderCheck[] = [
  {
    id: "invoke.status",
    duty: "resolves with the real exit status",
    run: (subject) =>
      withLease(subject, async (lease) => {
        for (const status of [0, 1, 7, 127]) {
          expect((await sh(lease, `exit ${status}`)).status).toBe(status);
        }
      }),
  },
  {
    id: "invoke.signal-status",
    duty: "a death by signal n is 128 + n",
    run: (subject) =>
      withLease(subject, async (lease) => {
        expect((await sh(lease, "kill -TERM $$")).status).toBe(143);
        expect((await sh(lease, "kill -KILL $$")).status).toBe(137);
      }),
  },
  {
    id: "invoke.closed-streams",
    duty: "waits for the process, not for its streams",
    run: (subject) =>
      withLease(subject, async (lease) => {
        const result = await sh(lease, "exec >&- 2>&-; sleep 0.2; echo x > late; exit 9");
        expect(result.status).toBe(9);
        expect((await sh(lease, "cat late")).stdout).toBe("x\n");
      }),
  },
  {
    id: "invoke.background",
    duty: "resolves when the process exits, whoever still holds its streams",
    run: (subject) =>
      withLease(subject, async (lease) => {
        const result = await sh(lease, "sleep 1000 & echo out; exit 4");
        expect(result).toMatchObject({ status: 4, stdout: "out\n" });
      }),
  },
  {
    id: "invoke.streams",
    duty: "standard output and error are kept apart",
    run: (subject) =>
      withLease(subject, async (lease) => {
        const result = await sh(lease, "echo out; echo err >&2");
        expect(result).toEqual({ status: 0, stdout: "out\n", stderr: "err\n" });
      }),
  },
  {
    id: "invoke.stdin",
    duty: "standard input is what was given, text or bytes, and ends",
    run: (subject) =>
      withLease(subject, async (lease) => {
        const text = await lease.invoke({ executable: "cat", stdin: "tëxt" });
        expect(text.stdout).toBe("tëxt");
        const bytes = await lease.invoke({ executable: "sha256sum", stdin: BINARY });
        expect(bytes.stdout).toBe(`${sha256(BINARY)}  -\n`);
        expect((await lease.invoke({ executable: "cat" })).stdout).toBe("");
      }),
  },
  {
    id: "invoke.directory",
    duty: "starts in root, or in the directory that was named",
    run: (subject) =>
      withLease(subject, async (lease) => {
        expect((await lease.invoke({ executable: "pwd" })).stdout).toBe(`${lease.root}\n`);
        const home = await lease.invoke({ executable: "pwd", directory: lease.home });
        expect(home.stdout).toBe(`${lease.home}\n`);
      }),
  },
  {
    id: "invoke.arguments",
    duty: "arguments stay what they are",
    run: (subject) =>
      withLease(subject, async (lease) => {
        const odd = ["", "a b", "$(id)", "`id`", ";", "*", "\\", "new\nline", "ü"];
        const result = await lease.invoke({ executable: "printf", arguments: ["%s\\0", ...odd] });
        expect(result.stdout.split("\0").slice(0, -1)).toEqual(odd);
      }),
  },
  {
    id: "invoke.missing-program",
    duty: "a program that is not there is an error, or the shell's 127; never a success",
    run: (subject) =>
      withLease(subject, async (lease) => {
        const result = await rejection(
          lease.invoke({ executable: "no-such-program" }).then(({ status }) => {
            if (status === 0) return status;
            throw new Error(`status ${status}`);
          }),
        );
        expect(result).toBeInstanceOf(Error);
      }),
  },
  {
    id: "invoke.observe",
    duty: "output is seen as it comes, as text",
    run: (subject) =>
      withLease(subject, async (lease) => {
        const seen: Record<string, string> = { stdout: "", stderr: "" };
        await lease.invoke({
          executable: "sh",
          arguments: ["-c", "printf 'eins \\303'; sleep 0.1; printf '\\274'; echo err >&2"],
          observe: (channel, text) => {
            seen[channel] += text;
          },
        });
        expect(seen).toEqual({ stdout: "eins ü", stderr: "err\n" });
      }),
  },
  {
    id: "invoke.retain",
    duty: "keeps the tail of each stream",
    run: (subject) =>
      withLease(subject, async (lease) => {
        const result = await lease.invoke({
          executable: "sh",
          arguments: ["-c", "seq 1 200000; seq 1 10 >&2"],
          retain: 20,
        });
        expect(result.stdout.endsWith("199999\n200000\n")).toBe(true);
        expect(Buffer.byteLength(result.stdout)).toBeLessThanOrEqual(20);
        expect(result.stderr.endsWith("9\n10\n")).toBe(true);
      }),
  },
  {
    id: "invoke.cancel",
    duty: "a cancelled command dies with its descendants, and the sandbox stays usable",
    run: (subject) =>
      withLease(subject, async (lease) => {
        const controller = new AbortController();
        const running = rejection(
          lease.invoke({
            executable: "sh",
            arguments: ["-c", BEATING],
            signal: controller.signal,
          }),
        );
        await untilBeating(lease);
        controller.abort();
        expect(await running).toBeInstanceOf(Error);
        expect((await sh(lease, IS_STILL)).status).toBe(0);
      }),
  },
  {
    id: "invoke.deadline",
    duty: "a command that takes too long dies with its descendants, and the sandbox stays usable",
    run: (subject) =>
      withLease(subject, async (lease) => {
        const late = await rejection(
          lease.invoke({
            executable: "sh",
            arguments: [
              "-c",
              `timeout 5 sh -c "${BEATING.replaceAll('"', '\\"').replaceAll("$", "\\$")}"`,
            ],
            deadlineMs: 1500,
          }),
        );
        expect(late).toBeInstanceOf(Error);
        expect((await sh(lease, IS_STILL)).status).toBe(0);
      }),
  },
];
