// Writing to descriptors: order, slow readers, readers that go away. Fixtures run as programs.

import { expect, test } from "bun:test";
import { join } from "node:path";
import { ClosedOutput, closedSink } from "../../../src/cli/terminal.ts";

const module = JSON.stringify(join(import.meta.dir, "../../../src/cli/terminal.ts"));

function run(code: string) {
  const source = `import { descriptorSink } from ${module};\nconst sink = descriptorSink(1);\n${code}`;
  // Lazy: otherwise Bun reads ahead without bound, and no reader is ever slow.
  return Bun.spawn([process.execPath, "-e", source], {
    stdout: "pipe",
    stderr: "pipe",
    lazy: true,
  });
}

test("descriptorSink() writes everything in order before drain() resolves", async () => {
  const child = run(`
    for (let n = 0; n < 200; n++) void sink.write(String(n).padStart(10000, " "));
    await sink.drain();
    process.exit(0);`);
  const text = await child.stdout.text();
  const numbers = text.match(/.{10000}/gs)?.map(Number);
  expect(numbers).toEqual(Array.from({ length: 200 }, (_, n) => n));
  expect(await child.exited).toBe(0);
});

test("descriptorSink() does not stop the event loop for a reader that does not read", async () => {
  const child = run(`
    let isWritten = false;
    void sink.write(new Uint8Array(4 << 20)).then(() => { isWritten = true; });
    let ticks = 0;
    const timer = setInterval(() => {
      ticks += 1;
      if (ticks < 20) return;
      clearInterval(timer);
      process.stderr.write(String(isWritten));
    }, 1);
    await sink.drain();
    process.exit(0);`);
  const { value } = await child.stderr.getReader().read();
  expect(Buffer.from(value ?? []).toString()).toBe("false");
  expect((await child.stdout.bytes()).length).toBe(4 << 20);
});

test("descriptorSink() rejects with ClosedOutput when its reader has gone away", async () => {
  const child = run(`
    try {
      for (;;) await sink.write("x".repeat(100000));
    } catch (error) {
      process.stderr.write(error.name);
    }
    await sink.drain();
    process.exit(0);`);
  const reader = child.stdout.getReader();
  await reader.read();
  await reader.cancel();
  expect(await child.stderr.text()).toBe("ClosedOutput");
  expect(await child.exited).toBe(0);
});

test.each([
  [">&-", "true"],
  ["<&- >&-", "true"],
  [">/dev/null", "false"],
  ["1<>/dev/null", "false"],
  ["<&- | cat", "false"],
])("wasClosed(1) of %s is %s", async (redirection, expected) => {
  const source = `import { wasClosed } from ${module};\nprocess.stderr.write(String(wasClosed(1)));`;
  const line = `exec 3>&2; { "$0" -e "$1" ${redirection}; } 2>&3`;
  const shell = ["/bin/bash", "-c", line, process.execPath, source];
  const child = Bun.spawn(shell, { stdout: "pipe", stderr: "pipe" });
  expect(await child.stderr.text()).toBe(expected);
});

test("closedSink() takes nothing", async () => {
  await expect(closedSink().write("x")).rejects.toThrow(ClosedOutput);
  await closedSink().drain();
});
