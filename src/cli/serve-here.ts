/** `cprg serve` and `cprg control-plane`: open everything, wait for a signal, close everything. */

import { SecretSet } from "../core/secrets.ts";
import { fullPrivileges } from "../sandbox/reduce-privileges.ts";
import { type ConfigInput, loadConfig } from "./config.ts";
import type { Settings } from "./config-table.ts";
import { EXIT } from "./exit-code.ts";
import { jsonLog } from "./log-json.ts";
import { takeSignals } from "./run-stop.ts";
import { announce } from "./serve-announce.ts";
import { bridgeTls } from "./serve-bridge.ts";
import { checkExposure, printSettings } from "./serve-config.ts";
import { keptPrivileges, openParts, type ServerKind } from "./serve-parts.ts";
import type { Terminal } from "./terminal.ts";
import { readTlsFiles, type TlsFiles } from "./tls-files.ts";

/** Serves until a signal asks it to stop; returns the exit code. */
export async function serveHere(
  kind: ServerKind,
  flags: ConfigInput["flags"],
  terminal: Terminal,
): Promise<number> {
  const config = await loadConfig({ flags, env: terminal.env, uid: terminal.uid });
  const { settings, warnings } = config;
  const isCheck = flags["check"] === true;
  // First, because it may start the program anew: what was said or opened before would be lost.
  const privileges = isCheck ? fullPrivileges() : await keptPrivileges(settings, kind, terminal);
  const secrets = new SecretSet();
  secrets.hold(config.secrets);
  const log = jsonLog(terminal.log, { spec: settings.log, now: Date.now, secrets });
  for (const message of warnings) log.scope("config").warn(message);
  checkExposure(config);
  const tls = await tlsFiles(settings, terminal);
  const bridge = await bridgeTls(settings, terminal.uid);
  if (isCheck) {
    await printSettings(config, { json: flags["json"] === true, terminal });
    return EXIT.ok;
  }
  const asked = Promise.withResolvers<void>();
  const hurried = Promise.withResolvers<void>();
  using _signals = takeSignals(terminal, { cancel: asked.resolve, kill: hurried.resolve });
  await using stack = new AsyncDisposableStack();
  const { isReduced, capabilities } = privileges;
  log.scope("serve").info("privileges", { reduced: isReduced, capabilities });
  const parts = await openParts(config, {
    kind,
    log,
    stack,
    hurried: hurried.promise,
    privileges,
    tls,
    bridgeTls: bridge,
    secrets,
  });
  // A closed standard output does not stop a server.
  await announce({ ...parts, terminal }).catch(() => undefined);
  const failure = await Promise.race([asked.promise.then(() => null), parts.storeFailed]);
  if (failure !== null) {
    await parts.stop(0);
    throw failure;
  }
  log.scope("serve").info("stopping", { grace_seconds: settings.stopGraceSeconds });
  void hurried.promise.then(async () => await parts.stop(0));
  await parts.stop(settings.stopGraceSeconds * 1000);
  return EXIT.ok;
}

async function tlsFiles(settings: Settings, terminal: Terminal): Promise<TlsFiles | null> {
  const { tlsCert: certPath, tlsKey: keyPath } = settings;
  return await readTlsFiles({ certPath, keyPath, uid: terminal.uid, now: Date.now() });
}
