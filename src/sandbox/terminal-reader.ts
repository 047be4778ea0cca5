/** Reading a terminal's master: what ends it is no end of file but an error. */

import type { ByteReader } from "./output.ts";

/**
 * A reader that ends where the terminal does. When the last program has closed it a read of the
 * master fails with EIO (pty(7)); nothing can be read of it after any error.
 */
export function terminalReader(reader: ByteReader): ByteReader {
  return {
    read: async () => {
      try {
        return await reader.read();
      } catch {
        return { done: true };
      }
    },
    cancel: () => reader.cancel(),
  };
}
