/** What the group of one program is on either version: a directory, and what is written to join it. */

import type { ExecGroup } from "./cgroup.ts";
import { makeGroupAside, readPids, removeGroup } from "./cgroup-files.ts";
import { closeAll } from "./descriptors.ts";

/** What the versions do differently. */
export type GroupWays = Omit<ExecGroup, "fds" | "sent" | "processes" | "remove">;

/**
 * Makes a group.
 *
 * @param join sets it up and adds the descriptors by which the program joins
 * @throws what that throws; then nothing is left
 */
export async function joinedGroup(
  directory: string,
  join: (fds: number[]) => void,
  ways: GroupWays,
): Promise<ExecGroup> {
  await makeGroupAside(directory);
  const fds: number[] = [];
  const remove = (): Promise<void> => removeGroup(directory);
  try {
    join(fds);
  } catch (error) {
    closeAll(fds);
    // The sandbox's own removal takes what is left, and fails loudly if it cannot.
    remove().catch(() => undefined);
    throw error;
  }
  return {
    fds,
    sent: () => closeAll(fds),
    processes: () => readPids(directory),
    remove,
    ...ways,
  };
}
