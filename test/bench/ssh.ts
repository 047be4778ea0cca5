// OpenSSH on loopback, with a host key and a user key of its own and nothing of the host's.

import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const START_MS_MAX = 10_000;

/** A server, and how to reach it. */
export interface Ssh extends Disposable {
  /** Words before a remote command. */
  readonly client: readonly string[];
  /** Words before what `scp` copies; `HOST:` is a path's beginning. */
  readonly copy: readonly string[];
  readonly host: string;
}

/** Starts sshd(8) as this user, which is root, for root. */
export async function startSsh(): Promise<Ssh> {
  const folder = mkdtempSync(join(tmpdir(), "cprg-ssh-"));
  chmodSync(folder, 0o755);
  mkdirSync("/run/sshd", { recursive: true });
  for (const name of ["host", "user"]) {
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", join(folder, name)]);
  }
  writeFileSync(join(folder, "authorized"), readFileSync(join(folder, "user.pub")), {
    mode: 0o600,
  });
  const port = await freePort();
  const settings = [
    `Port ${port}`,
    "ListenAddress 127.0.0.1",
    `HostKey ${join(folder, "host")}`,
    `AuthorizedKeysFile ${join(folder, "authorized")}`,
    "PermitRootLogin yes",
    "StrictModes no",
    "UsePAM no",
    `PidFile ${join(folder, "pid")}`,
    "Subsystem sftp internal-sftp",
  ];
  writeFileSync(join(folder, "config"), `${settings.join("\n")}\n`);
  const server = Bun.spawn(["/usr/sbin/sshd", "-D", "-e", "-f", join(folder, "config")], {
    stderr: "ignore",
  });
  const options = [
    ...["-F", "/dev/null", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"],
    ...["-o", "LogLevel=ERROR", "-o", "BatchMode=yes", "-i", join(folder, "user")],
  ];
  const client = ["ssh", ...options, "-p", `${port}`, "root@127.0.0.1"];
  await untilServed(client);
  return {
    client,
    copy: ["scp", "-q", ...options, "-P", `${port}`],
    host: "root@127.0.0.1",
    [Symbol.dispose]: () => {
      server.kill();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function untilServed(client: readonly string[]): Promise<void> {
  const stopMs = performance.now() + START_MS_MAX;
  while (performance.now() < stopMs) {
    if (Bun.spawnSync([...client, "true"]).exitCode === 0) return;
    await Bun.sleep(50);
  }
  throw new Error("sshd does not answer: apt-get install openssh-server");
}

function run(words: string[]): void {
  if (Bun.spawnSync(words).exitCode !== 0) throw new Error(`${words[0]} failed`);
}

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port));
    });
  });
}
