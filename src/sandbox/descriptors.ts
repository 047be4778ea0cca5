/** Descriptors that are held together. */

import { closeSync } from "node:fs";

/** Closes descriptors and forgets them. */
export function closeAll(fds: number[]): void {
  for (const fd of fds.splice(0)) closeSync(fd);
}
