/** Names of capabilities (linux/capability.h), and sets of them as the kernel has them. */

/** By number, without CAP_. Numbers never change; the last is Linux 5.9's. */
const NAMES = [
  "CHOWN",
  "DAC_OVERRIDE",
  "DAC_READ_SEARCH",
  "FOWNER",
  "FSETID",
  "KILL",
  "SETGID",
  "SETUID",
  "SETPCAP",
  "LINUX_IMMUTABLE",
  "NET_BIND_SERVICE",
  "NET_BROADCAST",
  "NET_ADMIN",
  "NET_RAW",
  "IPC_LOCK",
  "IPC_OWNER",
  "SYS_MODULE",
  "SYS_RAWIO",
  "SYS_CHROOT",
  "SYS_PTRACE",
  "SYS_PACCT",
  "SYS_ADMIN",
  "SYS_BOOT",
  "SYS_NICE",
  "SYS_RESOURCE",
  "SYS_TIME",
  "SYS_TTY_CONFIG",
  "MKNOD",
  "LEASE",
  "AUDIT_WRITE",
  "AUDIT_CONTROL",
  "SETFCAP",
  "MAC_OVERRIDE",
  "MAC_ADMIN",
  "SYSLOG",
  "WAKE_ALARM",
  "BLOCK_SUSPEND",
  "AUDIT_READ",
  "PERFMON",
  "BPF",
  "CHECKPOINT_RESTORE",
] as const;

/** A capability of capabilities(7), without its CAP_. */
export type CapabilityName = (typeof NAMES)[number];

/** A set: bit n is capability number n. */
export function capabilityMask(names: readonly CapabilityName[]): bigint {
  return names.reduce((mask, name) => mask | (1n << BigInt(NAMES.indexOf(name))), 0n);
}

/** `CAP_SETUID` and so on; `CAP_41` for one that is newer than this list. */
export function capabilityNames(mask: bigint): readonly string[] {
  const bits = [...mask.toString(2)].reverse();
  return bits.flatMap((bit, at) => (bit === "1" ? [`CAP_${NAMES[at] ?? at}`] : []));
}
