/** Which interpreters of this host run in a sandbox, as layers: one that is missing is installed. */

import { CprgError } from "../core/errors.ts";
import type { PackagedInterpreter } from "./distribution.ts";
import type { HostLayer } from "./host-layer.ts";
import type { LocalLanguages } from "./languages.ts";

const INTERPRETERS: readonly PackagedInterpreter[] = ["python", "node", "bash"];

/** Looks for each; none is required, because TypeScript runs on the executable itself. */
export async function interpreterLayers(languages: LocalLanguages): Promise<readonly HostLayer[]> {
  return await Promise.all(
    INTERPRETERS.map(async (name): Promise<HostLayer> => {
      try {
        const { version, executable } = await languages.resolve(name);
        const detail = `${executable}, version ${version}`;
        return { name, ok: true, isRequired: false, detail, fix: null };
      } catch (error) {
        const { message, hint } = CprgError.from(error);
        return { name, ok: false, isRequired: false, detail: message, fix: hint ?? null };
      }
    }),
  );
}
