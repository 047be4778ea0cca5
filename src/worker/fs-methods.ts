/** `fs.*`: files of a claim, in single messages and in chunks of any number. */

import type { HandlerTable } from "../bridge/contract.ts";
import { READ_BYTES_MAX } from "../bridge/limits.ts";
import {
  FS_DOWNLOAD,
  FS_LIST_DIR,
  FS_MAKE_DIR,
  FS_READ_FILE,
  FS_REMOVE,
  FS_RENAME,
  FS_STAT,
  FS_UPLOAD,
  FS_WRITE_FILE,
} from "../bridge/methods.ts";
import { invalid } from "../core/errors.ts";
import type { ClaimHolder } from "./claim-holder.ts";
import { downloadItems } from "./fs-download.ts";
import { takeUpload } from "./fs-upload.ts";
import type { PlaceFiles } from "./place.ts";

/** Entries that one `fs.ListDir` gives. */
export const LIST_ENTRIES_MAX = 10_000;
const MODES = 0o777;

/** What files are served from. */
export interface FsMethodsOptions {
  readonly holder: ClaimHolder;
  /** Bytes that one `fs.ReadFile` gives. */
  readonly readBytesMax: number;
}

/** Adds the methods. */
export function serveFiles(handlers: HandlerTable, options: FsMethodsOptions): void {
  const { holder, readBytesMax } = options;
  const filesOf = (request: { readonly claim: Parameters<ClaimHolder["use"]>[0] }): PlaceFiles =>
    holder.use(request.claim).place.files;
  handlers
    .unary(FS_READ_FILE, (request) => {
      const { path, offset, length } = request;
      return filesOf(request).read(path, { offset, length, lengthMax: readBytesMax });
    })
    .unary(FS_WRITE_FILE, async (request) => {
      const { path, content, parents } = request;
      if (content.length > READ_BYTES_MAX) {
        throw invalid("content", `above ${READ_BYTES_MAX} bytes: use fs.Upload`);
      }
      await filesOf(request).write(path, content, { ...modeOf(request), parents });
      return {};
    })
    .unary(FS_STAT, async (request) => ({ stat: await filesOf(request).stat(request.path) }))
    .unary(FS_LIST_DIR, (request) => {
      const limit = Math.min(request.limit || LIST_ENTRIES_MAX, LIST_ENTRIES_MAX);
      return filesOf(request).list(request.path, { after: request.after, limit });
    })
    .unary(FS_MAKE_DIR, async (request) => {
      const { path, parents } = request;
      await filesOf(request).makeDir(path, { ...modeOf(request), parents });
      return {};
    })
    .unary(FS_REMOVE, async (request) => {
      const { path, recursive } = request;
      return { existed: await filesOf(request).remove(path, { recursive }) };
    })
    .unary(FS_RENAME, async (request) => {
      await filesOf(request).rename(request.from, request.to);
      return {};
    })
    .serverStream(FS_DOWNLOAD, (request, { signal }) => {
      const claim = holder.use(request.claim);
      const either = AbortSignal.any([signal, claim.ending]);
      return downloadItems(claim.place.files.take(request.path, either), either);
    })
    .clientStream(FS_UPLOAD, async (items, { signal }) => takeUpload(items, { holder, signal }));
}

function modeOf({ mode }: { readonly mode?: number }): { readonly mode?: number } {
  return mode === undefined ? {} : { mode: mode & MODES };
}
