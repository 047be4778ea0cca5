/** Every bound of the wire; the numbers are those of proto/PROTOCOL.md. */

/** An encoded Envelope: what gRPC peers accept unless told otherwise (4 MiB). */
export const MESSAGE_BYTES_MAX = 4 * 1024 * 1024;
/** Payload of one item of a stream. */
export const ITEM_BYTES_MAX = 256 * 1024;
/** Payload of a unary request or response: 3 MiB of content, and room for the rest. */
export const UNARY_BYTES_MAX = 3 * 1024 * 1024 + 256 * 1024;
/** Content that one unary read or write may have. */
export const READ_BYTES_MAX = 3 * 1024 * 1024;
/** Bytes of an id and of a method. */
export const NAME_BYTES_MAX = 128;
/** Bytes of `Envelope.error`. */
export const ERROR_BYTES_MAX = 4096;
/** Bytes kept of the reason of a cancel. */
export const REASON_BYTES_MAX = 1024;

/** Calls open at once, for each side. */
export const OPEN_CALLS_MAX = 1024;
/** Payloads of unfinished requests of one peer, together. */
export const REQUEST_BYTES_MAX = 16 * 1024 * 1024;
/** Calls that were answered before their items ended, whose late items are known. */
export const EARLY_ANSWERS_MAX = 1024;
/** Frames that break a rule and are dropped, before the stream is ended. */
export const DROPPED_FRAMES_MAX = 1000;

/** What each direction of items starts with. */
export const CREDIT_BYTES = 256 * 1024;
/** What an item costs beside its payload: it bounds how many are under way. */
export const ITEM_COST_BYTES = 64;
/** Consumed bytes that are granted back together. */
export const GRANT_BYTES = 64 * 1024;
/** Most that one notice may grant. */
export const GRANT_BYTES_MAX = 1024 * 1024 * 1024;

/** Without credit: bytes kept for a reader before the whole stream is held back. */
export const UNCREDITED_BYTES_MAX = 1024 * 1024;
/** Without credit: how long one reader may hold the stream back. */
export const STALL_MS_MAX = 10_000;

/** Names and values of the metadata that a side sends. */
export const METADATA_BYTES_MAX = 8192;
/** Seconds between two HTTP/2 pings, and for the answer to one. */
export const PING_INTERVAL_MS = 20_000;
export const PING_TIMEOUT_MS = 20_000;

/** From the connection to its accepted stream. */
export const HANDSHAKE_MS_MAX = 15_000;
/** From closing a stream to the end of its connection, whatever the peer does. */
export const CLOSE_MS_MAX = 1000;
/** How long a dialer waits for response headers from a plain peer, which may send none. */
export const HEADERS_MS_MAX = 2000;
