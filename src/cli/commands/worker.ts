/** `cprg worker`: serves programs and files of this machine to a control plane that it dials. */

import { defineCommand } from "../command.ts";

export const worker = defineCommand({
  name: "worker",
  aliases: [],
  summary: "Dial a control plane and serve it programs and files, with no port open",
  help: {
    usage: ["--connect HOST:PORT (--token TOKEN | --token-file FILE) [--root DIR] [flags]"],
    description: [
      "Opens one outbound stream and waits on it to be claimed for a task; listens on nothing. Each claim " +
        "gets a sandbox of its own on this host, empty and without network, which goes with it.",
      "With --root DIR, or --isolate off, there is no sandbox: programs run as this user with all that it " +
        "may do, for where everything may be lost, such as a container of its own. Each claim has a new " +
        "directory beneath DIR, which goes with it; with --once it has DIR itself, which stays.",
      "The token leaves arguments and environment at once (the program executes itself anew); - as " +
        "TOKEN reads it from standard input. Programs get a clean environment, the claim's variables, and " +
        "those of --pass-env.",
      "A lost stream is dialled again for ever, after 1 s doubling to 60 s; with --attempts it stops with " +
        "exit code 4 where none was ever opened. Refused, it stops with 3. SIGTERM finishes the claim and takes no other; a second one kills. HTTPS_PROXY and " +
        "NO_PROXY are honoured.",
    ],
    examples: [
      {
        line: "cprg worker --connect bridge.example.com:7600 --tls --token-file token --root /work --once",
        does: "One task, in a container of its own",
      },
      {
        line: "cprg worker --connect 127.0.0.1:7600 --token - --slots 4 --limit mem_mb=1024",
        does: "Four claims at once, each in a sandbox; the token from standard input",
      },
    ],
  },
  flags: {
    connect: {
      kind: "text",
      value: "HOST:PORT",
      env: "CPRG_WORKER_CONNECT",
      doc: "The control plane; port 7600 if none is given",
    },
    token: {
      kind: "text",
      value: "TOKEN",
      env: "CPRG_WORKER_TOKEN",
      doc: "Who the worker is to it; - reads standard input",
    },
    "token-file": {
      kind: "text",
      value: "FILE",
      env: "CPRG_WORKER_TOKEN_FILE",
      doc: "A file with the token",
    },
    root: {
      kind: "text",
      value: "DIR",
      env: "CPRG_WORKER_ROOT",
      doc: "What claims have their files in, without a sandbox; made when missing",
    },
    isolate: {
      kind: "text",
      value: "MODE",
      env: "CPRG_WORKER_ISOLATE",
      doc: "auto, ns, rootless or off; off with --root, else auto",
    },
    slots: {
      kind: "text",
      value: "N",
      env: "CPRG_WORKER_SLOTS",
      doc: "Claims at once; above 1 only with a sandbox",
    },
    limit: {
      kind: "list",
      value: "NAME=N",
      env: "CPRG_WORKER_LIMITS",
      doc: "A limit of each sandbox: mem_mb, disk_mb, pids, cpu_cores, ...",
    },
    label: {
      kind: "list",
      value: "NAME=VALUE",
      env: "CPRG_WORKER_LABELS",
      doc: "What tasks choose workers by",
    },
    name: { kind: "text", value: "NAME", env: "CPRG_WORKER_NAME", doc: "For people" },
    once: { kind: "switch", env: "CPRG_WORKER_ONCE", doc: "Exit after the first claim" },
    attempts: {
      kind: "text",
      value: "N",
      env: "CPRG_WORKER_ATTEMPTS",
      doc: "Give up after so many dials in a row without a stream; for ever by default",
    },
    plain: {
      kind: "switch",
      env: "CPRG_WORKER_PLAIN",
      doc: "List no capability, for a control plane or proxy that takes none: claims end with their stream",
    },
    tls: { kind: "switch", env: "CPRG_WORKER_TLS", doc: "TLS, with the system's authorities" },
    "tls-ca": {
      kind: "text",
      value: "FILE",
      env: "CPRG_WORKER_TLS_CA",
      doc: "TLS, with the authorities in FILE (PEM)",
    },
    "tls-cert": {
      kind: "text",
      value: "FILE",
      env: "CPRG_WORKER_TLS_CERT",
      doc: "This worker's own certificate (PEM)",
    },
    "tls-key": {
      kind: "text",
      value: "FILE",
      env: "CPRG_WORKER_TLS_KEY",
      doc: "Its key (PEM)",
    },
    "state-dir": {
      kind: "text",
      value: "DIR",
      env: "CPRG_WORKER_STATE_DIR",
      doc: "Keeps the worker's id and its secret; default: worker in the data directory",
    },
    "max-read-bytes": {
      kind: "text",
      value: "N",
      env: "CPRG_WORKER_MAX_READ_BYTES",
      doc: "Most that one read gives, at most and by default 3145728",
    },
    "pass-env": {
      kind: "list",
      value: "NAME",
      env: "CPRG_WORKER_PASS_ENV",
      doc: "A variable of the worker that programs get too",
    },
  },
  arguments: [],
  takesRest: false,
  async run({ flags, terminal }) {
    // Loaded on demand: the bridge's libraries cost start-up time that other commands save.
    const { workHere } = await import("../worker-here.ts");
    return await workHere(flags, terminal);
  },
});
