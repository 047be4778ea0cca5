/**
 * What is put up on the host for attacks to reach for: files with random content, and sockets that
 * count who comes. All of it is ours and goes with the stage.
 */

import {
  chmodSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { createServer, type Server } from "node:net";
import { homedir } from "node:os";
import { join } from "node:path";
import { CprgError } from "../core/errors.ts";
import type { LocalEngine } from "../sandbox/engine-contract.ts";

/** Directories that are on most hosts and that programs write to; those that we may not are left. */
const CANARY_PLACES = ["/tmp", "/var/tmp", "/run", "/dev/shm", "/opt", "/srv"] as const;
/** How the names of all that is put up begin. */
export const STAGE_PREFIX = "cprg-attack-";
const HOST_ADDRESS = "127.0.0.1";

/** The stage. */
export interface Stage {
  readonly engine: LocalEngine;
  /** Random; the content of every canary. */
  readonly token: string;
  /** Files that hold it. */
  readonly canaries: readonly string[];
  /** What became of canaries that nobody may have touched; empty when they are as they were. */
  canaryDamage(): readonly string[];
  /** Sockets that listen on the host. */
  readonly listeners: {
    readonly port: number;
    readonly path: string;
    /** A name in the abstract namespace (unix(7)), without its leading NUL. */
    readonly abstractName: string;
    /** How many connections they have had. */
    connections(): number;
  };
  /** Takes everything away; idempotent. */
  close(): Promise<void>;
}

/** Puts everything up. @throws CprgError when not even one canary can be planted */
export async function openStage(engine: LocalEngine): Promise<Stage> {
  const token = crypto.randomUUID().replaceAll("-", "");
  const directories = plantDirectories([...CANARY_PLACES, homedir()]);
  const canaries = directories.map((directory) => plant(directory, token));
  if (canaries.length === 0) {
    const places = CANARY_PLACES.join(", ");
    throw new CprgError("failed_precondition", "Cannot attack: no place for a canary", {
      reason: "NO_CANARY",
      hint: `One of these must be writable: ${places}, or the home directory`,
    });
  }
  const before = new Map(canaries.map((path) => [path, describeFile(path)]));
  const sockets = await openSockets(directories[0] ?? "/tmp");
  return {
    engine,
    token,
    canaries,
    canaryDamage: () =>
      canaries.filter((path) => describeFile(path) !== before.get(path)).map((path) => path),
    listeners: sockets.listeners,
    close: async () => {
      await sockets.close();
      for (const directory of directories) rmSync(directory, { recursive: true, force: true });
    },
  };
}

function plantDirectories(places: readonly string[]): readonly string[] {
  return [...new Set(places)].flatMap((place) => {
    try {
      return [mkdtempSync(join(place, STAGE_PREFIX))];
    } catch {
      // Not there, read-only, or not ours: another place will do.
      return [];
    }
  });
}

/** As open as can be: what keeps a program away must not be the mode. */
function plant(directory: string, token: string): string {
  const path = join(directory, "canary");
  writeFileSync(path, `${token}\n`);
  chmodSync(path, 0o666);
  chmodSync(directory, 0o777);
  return path;
}

/** Everything about a canary and its neighbours that a write would change. */
function describeFile(path: string): string {
  try {
    const { ino, size, mode, nlink, uid, mtimeMs, ctimeMs } = statSync(path);
    const around = readdirSync(join(path, "..")).filter((name) => name !== "socket");
    const content = readFileSync(path, "utf8");
    return JSON.stringify({ ino, size, mode, nlink, uid, mtimeMs, ctimeMs, content, around });
  } catch (error) {
    return `gone: ${(error as Error).message}`;
  }
}

async function openSockets(directory: string) {
  let connections = 0;
  const servers: Server[] = [];
  const listen = (where: { host: string; port: number } | { path: string }): Promise<Server> =>
    new Promise((resolve, reject) => {
      const server = createServer((socket) => {
        connections += 1;
        socket.destroy();
      });
      servers.push(server);
      server.once("error", reject);
      server.listen(where, () => resolve(server));
    });
  const path = join(directory, "socket");
  const abstractName = `${STAGE_PREFIX}${crypto.randomUUID()}`;
  const tcp = await listen({ host: HOST_ADDRESS, port: 0 });
  await listen({ path });
  chmodSync(path, 0o777);
  await listen({ path: `\0${abstractName}` });
  const bound = tcp.address();
  const port = typeof bound === "object" && bound !== null ? bound.port : 0;
  return {
    listeners: { port, path, abstractName, connections: () => connections },
    close: async () => {
      await Promise.all(
        servers.map((server) => new Promise<void>((resolve) => server.close(() => resolve()))),
      );
    },
  };
}
