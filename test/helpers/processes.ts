// What runs on the host, as the kernel tells it: the proof that nothing of a sandbox is left.

import { readdirSync, readFileSync, readlinkSync } from "node:fs";

/** Pids of every process whose command line holds the text; zombies have none. */
export function pidsWith(text: string): number[] {
  return pids().filter((pid) => read(`/proc/${pid}/cmdline`).includes(text));
}

function pids(): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
}

function read(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    // The process ended in between.
    return "";
  }
}

/** Addresses that a process listens on: `127.0.0.1`, `::1`, … */
export function listeningAddresses(pid: number): string[] {
  const inodes = new Set(socketInodes(pid));
  return ["tcp", "tcp6"].flatMap((family) =>
    read(`/proc/${pid}/net/${family}`)
      .split("\n")
      .slice(1)
      .map((line) => line.trim().split(/\s+/))
      .filter((fields) => fields[3] === LISTEN && inodes.has(fields[9] ?? ""))
      .map((fields) => toAddress((fields[1] ?? "").split(":")[0] ?? "")),
  );
}

/** TCP_LISTEN of include/net/tcp_states.h. */
const LISTEN = "0A";

function socketInodes(pid: number): string[] {
  return readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
    try {
      return /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${fd}`))?.[1] ?? [];
    } catch {
      // The descriptor was closed in between.
      return [];
    }
  });
}

/** Words of four bytes, each in the order of this host: little endian. */
function toAddress(hex: string): string {
  if (hex.length !== 8) return hex;
  return (hex.match(/../g) ?? [])
    .reverse()
    .map((byte) => Number.parseInt(byte, 16))
    .join(".");
}
