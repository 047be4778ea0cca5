// Certificates for tests of TLS, made by openssl(1).

import { join } from "node:path";

/** Paths of a certificate that signed itself, for 127.0.0.1 and localhost, and of its key. */
export function makeCertificate(folder: string, name: string, days = 2) {
  const cert = join(folder, `${name}.crt`);
  const key = join(folder, `${name}.key`);
  const words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
  const subject = ["-subj", `/CN=${name}`, "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"];
  const made = Bun.spawnSync(
    ["openssl", ...words, ...subject, "-days", `${days}`, "-keyout", key, "-out", cert],
    { stdout: "ignore", stderr: "pipe" },
  );
  if (made.exitCode !== 0) throw new Error(`openssl: ${made.stderr}`);
  return { cert, key };
}
