/** `fs.*`: files of a claim, in single messages and in chunks of any number. */

import type { CallContext, HandlerTable } from "../bridge/contract.ts";
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
import type { Claim, FsDownloadItem, FsDownloadRequest } from "../gen/messages.ts";
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
  /** A handler that is given the files of the call's claim, and ends with it. */
  const of =
    <Request extends { readonly claim: Claim | null }, Response>(
      act: (files: PlaceFiles, request: Request) => Promise<Response>,
    ) =>
    async (request: Request, context: CallContext): Promise<Response> => {
      const { calls, place } = holder.use(request.claim);
      using _call = calls.begin(context);
      return await act(place.files, request);
    };
  handlers
    .unary(
      FS_READ_FILE,
      of((files, { path, offset, length }) =>
        files.read(path, { offset, length, lengthMax: readBytesMax }),
      ),
    )
    .unary(
      FS_WRITE_FILE,
      of(async (files, request) => {
        const { path, content, parents } = request;
        if (content.length > READ_BYTES_MAX) {
          throw invalid("content", `above ${READ_BYTES_MAX} bytes: use fs.Upload`);
        }
        await files.write(path, content, { ...modeOf(request), parents });
        return {};
      }),
    )
    .unary(
      FS_STAT,
      of(async (files, { path }) => ({ stat: await files.stat(path) })),
    )
    .unary(
      FS_LIST_DIR,
      of((files, { path, after, limit }) =>
        files.list(path, { after, limit: Math.min(limit || LIST_ENTRIES_MAX, LIST_ENTRIES_MAX) }),
      ),
    )
    .unary(
      FS_MAKE_DIR,
      of(async (files, request) => {
        const { path, parents } = request;
        await files.makeDir(path, { ...modeOf(request), parents });
        return {};
      }),
    )
    .unary(
      FS_REMOVE,
      of(async (files, { path, recursive }) => ({
        existed: await files.remove(path, { recursive }),
      })),
    )
    .unary(
      FS_RENAME,
      of(async (files, { from, to }) => {
        await files.rename(from, to);
        return {};
      }),
    )
    .serverStream(FS_DOWNLOAD, (request, context) => download(request, { holder, context }))
    .clientStream(FS_UPLOAD, (items, context) => takeUpload(items, { holder, context }));
}

async function* download(
  { claim, path }: FsDownloadRequest,
  { holder, context }: { readonly holder: ClaimHolder; readonly context: CallContext },
): AsyncGenerator<Partial<FsDownloadItem>, void, void> {
  const { calls, place } = holder.use(claim);
  using _call = calls.begin(context);
  yield* downloadItems(place.files.take(path, context.signal), context.signal);
}

function modeOf({ mode }: { readonly mode?: number }): { readonly mode?: number } {
  return mode === undefined ? {} : { mode: mode & MODES };
}
