import { expect } from "bun:test";
import { requireHost } from "../helpers/host.ts";
import { TempDir } from "./samples.ts";

const host = requireHost({ root: true, programs: ["unshare", "mount"] });

host.test(
  "a full disk is DISK_FULL, damages nothing, refuses only what does not fit, and lets jobs end",
  async () => {
    using folder = new TempDir();
    const fixture = `${import.meta.dir}/fixtures/fill-disk.ts`;
    // In a mount namespace of its own, so that the small disk goes with the process.
    const script = 'mount -t tmpfs -o size=4m tmpfs "$1" && exec "$2" "$3" "$1"';
    const child = Bun.spawn(
      ["unshare", "--mount", "sh", "-c", script, "sh", folder.path, process.execPath, fixture],
      { stdout: "pipe", stderr: "inherit" },
    );
    const result = JSON.parse(await new Response(child.stdout).text());
    await child.exited;
    expect(result).toMatchObject({
      code: "resource_exhausted",
      reason: "DISK_FULL",
      hint: expect.stringContaining("space"),
      verified: true,
      large: "rejected",
      small: "fulfilled",
      end: "fulfilled",
      afterEnd: "DISK_FULL",
      checked: "DISK_FULL",
      afterRoom: "fulfilled",
    });
    expect(result.acknowledged).toBeGreaterThan(5);
    expect(result.kept).toBe(result.acknowledged);
  },
  30_000,
);
