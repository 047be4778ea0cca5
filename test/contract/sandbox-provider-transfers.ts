// Duties of `upload` and `download`.

import { expect } from "bun:test";
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import {
  BINARY,
  type ProviderCheck,
  rejection,
  sh,
  sha256,
  withLease,
} from "./sandbox-provider-check.ts";

/** A tree of text, modes and links. */
function makeTree(scratch: string): string {
  const tree = join(scratch, "tree");
  mkdirSync(join(tree, "sub", "empty"), { recursive: true });
  writeFileSync(join(tree, "sub", "text"), "text\n");
  writeFileSync(join(tree, "zero"), "");
  return tree;
}

/** All of them. */
export const TRANSFER_CHECKS: readonly ProviderCheck[] = [
  {
    id: "transfer.bytes",
    duty: "bytes arrive as they are, both ways",
    run: (subject, scratch) =>
      withLease(subject, async (lease) => {
        writeFileSync(join(scratch, "binary"), BINARY);
        await lease.upload(join(scratch, "binary"), `${lease.root}/binary`);
        expect((await sh(lease, "sha256sum < binary")).stdout).toBe(`${sha256(BINARY)}  -\n`);
        await lease.download(`${lease.root}/binary`, join(scratch, "back"));
        expect(sha256(readFileSync(join(scratch, "back")))).toBe(sha256(BINARY));
      }),
  },
  {
    id: "transfer.trees",
    duty: "trees go both ways, empty directories and files too",
    run: (subject, scratch) =>
      withLease(subject, async (lease) => {
        const tree = makeTree(scratch);
        await lease.upload(tree, `${lease.root}/deep/tree`);
        const listed = await sh(lease, "cd deep/tree && find . | sort && cat sub/text");
        expect(listed.stdout).toBe(".\n./sub\n./sub/empty\n./sub/text\n./zero\ntext\n");
        await lease.download(`${lease.root}/deep/tree`, join(scratch, "back"));
        expect(readdirSync(join(scratch, "back"), { recursive: true }).sort()).toEqual([
          "sub",
          "sub/empty",
          "sub/text",
          "zero",
        ]);
      }),
  },
  {
    id: "transfer.modes",
    duty: "permission bits are kept, both ways",
    run: (subject, scratch) =>
      withLease(subject, async (lease) => {
        for (const mode of [0o644, 0o755, 0o600, 0o444]) {
          const name = `mode-${mode.toString(8)}`;
          writeFileSync(join(scratch, name), "text");
          chmodSync(join(scratch, name), mode);
          await lease.upload(join(scratch, name), `${lease.root}/${name}`);
          expect((await sh(lease, `stat -c %a ${name}`)).stdout).toBe(`${mode.toString(8)}\n`);
          await lease.download(`${lease.root}/${name}`, join(scratch, `${name}-back`));
          expect(lstatSync(join(scratch, `${name}-back`)).mode & 0o777).toBe(mode);
        }
      }),
  },
  {
    id: "transfer.links",
    duty: "symbolic links stay links, both ways",
    run: (subject, scratch) =>
      withLease(subject, async (lease) => {
        const tree = makeTree(scratch);
        symlinkSync("sub/text", join(tree, "link"));
        await lease.upload(tree, `${lease.root}/linked`);
        expect((await sh(lease, "readlink linked/link && cat linked/link")).stdout).toBe(
          "sub/text\ntext\n",
        );
        await lease.download(`${lease.root}/linked`, join(scratch, "back"));
        expect(readlinkSync(join(scratch, "back", "link"))).toBe("sub/text");
      }),
  },
  {
    id: "transfer.replace",
    duty: "what was at the destination is replaced as a whole",
    run: (subject, scratch) =>
      withLease(subject, async (lease) => {
        await sh(lease, "mkdir tree; echo old > tree/old");
        await lease.upload(makeTree(scratch), `${lease.root}/tree`);
        expect((await sh(lease, "ls tree")).stdout).toBe("sub\nzero\n");
        mkdirSync(join(scratch, "out"));
        writeFileSync(join(scratch, "out", "old"), "old");
        await lease.download(`${lease.root}/tree`, join(scratch, "out"));
        expect(readdirSync(join(scratch, "out")).sort()).toEqual(["sub", "zero"]);
      }),
  },
  {
    id: "transfer.escape",
    duty: "a link that leads out of what is downloaded brings nothing of the host into reach",
    run: (subject, scratch) =>
      withLease(subject, async (lease) => {
        await sh(lease, "mkdir evil; echo fine > evil/fine; ln -s /etc/passwd evil/link");
        const target = join(scratch, "evil");
        await lease.download(`${lease.root}/evil`, target).catch(() => undefined);
        const link = lstatSync(join(target, "link"), { throwIfNoEntry: false });
        expect(link).toBeUndefined();
        // Each link alone looks as if it stayed inside.
        await sh(
          lease,
          "mkdir -p chain/a/b/c; ln -s ../../.. chain/a/b/c/up; ln -s a/b/c/up/../../../etc/passwd chain/link",
        );
        const chained = join(scratch, "chain");
        await lease.download(`${lease.root}/chain`, chained).catch(() => undefined);
        expect(lstatSync(join(chained, "link"), { throwIfNoEntry: false })).toBeUndefined();
      }),
  },
  {
    id: "transfer.missing",
    duty: "what is not there is an error, on either side",
    run: (subject, scratch) =>
      withLease(subject, async (lease) => {
        const up = await rejection(lease.upload(join(scratch, "absent"), `${lease.root}/x`));
        const down = await rejection(lease.download(`${lease.root}/absent`, join(scratch, "x")));
        expect([up, down]).toEqual([expect.any(Error), expect.any(Error)]);
      }),
  },
  {
    id: "transfer.cancel",
    duty: "signal and deadline stop a transfer, which leaves nothing half-made on either side",
    run: (subject, scratch) =>
      withLease(subject, async (lease) => {
        const source = join(scratch, "large");
        writeFileSync(source, new Uint8Array(48 << 20));
        const target = `${lease.root}/large`;
        const aborted = { signal: AbortSignal.abort() };
        expect(await rejection(lease.upload(source, target, aborted))).toBeInstanceOf(Error);
        expect(await rejection(lease.upload(source, target, { deadlineMs: 1 }))).toBeInstanceOf(
          Error,
        );
        expect((await sh(lease, "ls -A")).stdout).toBe("");
        await sh(lease, "head -c 50331648 /dev/zero > large");
        mkdirSync(join(scratch, "into"));
        const back = join(scratch, "into", "large");
        expect(await rejection(lease.download(target, back, aborted))).toBeInstanceOf(Error);
        expect(await rejection(lease.download(target, back, { deadlineMs: 1 }))).toBeInstanceOf(
          Error,
        );
        expect(readdirSync(join(scratch, "into"))).toEqual([]);
      }),
  },
  {
    id: "transfer.staging",
    duty: "staging is gone after success and after failure",
    run: (subject, scratch) =>
      withLease(subject, async (lease) => {
        const into = join(scratch, "into");
        mkdirSync(into);
        writeFileSync(join(scratch, "file"), "text");
        await lease.upload(join(scratch, "file"), `${lease.root}/file`);
        expect((await sh(lease, "ls -A")).stdout).toBe("file\n");
        await lease.download(`${lease.root}/file`, join(into, "file"));
        await rejection(lease.download(`${lease.root}/absent`, join(into, "absent")));
        expect(readdirSync(into)).toEqual(["file"]);
      }),
  },
];
