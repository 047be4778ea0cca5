/** The version that the build stamps into the binary (`--define CPRG_VERSION`). */

declare const CPRG_VERSION: string;

/** `0.1.0`, or `0.0.0-source` when it runs from the sources. */
export const VERSION: string = typeof CPRG_VERSION === "string" ? CPRG_VERSION : "0.0.0-source";
