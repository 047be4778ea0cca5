// Groups of a test's own, in every hierarchy of this host, as a service has them from systemd.

import { existsSync, mkdirSync, readdirSync, rmdirSync, statSync } from "node:fs";
import { join } from "node:path";

const ROOT = "/sys/fs/cgroup";

/** Groups; they go when the test ends, which fails where something is left in them. */
export interface OwnGroups extends Disposable {
  /** For CPRG_CGROUP. */
  readonly path: string;
  /** Groups that were made beneath them and are still there. */
  left(): string[];
}

/** Makes one in each hierarchy: where not even root may write without CAP_DAC_OVERRIDE, this can. */
export function makeOwnGroups(): OwnGroups {
  const name = `cprg-e2e-${crypto.randomUUID()}`;
  const places = hierarchies().map((hierarchy) => join(hierarchy, name));
  for (const place of places) mkdirSync(place);
  return {
    path: `/${name}`,
    left: () =>
      places.flatMap((place) =>
        readdirSync(place, { withFileTypes: true })
          .filter((entry) => entry.isDirectory())
          .map((entry) => join(place, entry.name)),
      ),
    [Symbol.dispose]: () => {
      for (const place of places) rmdirSync(place);
    },
  };
}

/** Mount points: v2 alone, or those of v1 and cgroup2 beside them. Links name one a second time. */
function hierarchies(): string[] {
  if (existsSync(join(ROOT, "cgroup.controllers"))) return [ROOT];
  return readdirSync(ROOT, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map((entry) => join(ROOT, entry.name))
    .filter((place) => existsSync(join(place, "cgroup.procs")))
    .filter((place) => !place.endsWith("/cpuset") && statSync(place).isDirectory());
}
