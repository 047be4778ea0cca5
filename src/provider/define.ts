/** What both kinds of provider have in common: a checked name and a frozen result. */

import { invalid } from "../core/errors.ts";
import { PROVIDER_NAME, type SandboxProvider } from "./contract.ts";

/** What an author gives. */
export interface ProviderDefinition {
  /** Matches {@link PROVIDER_NAME}. */
  readonly name: string;
  /** Variables of every command. */
  readonly variables?: Readonly<Record<string, string>>;
  readonly acquire: SandboxProvider["acquire"];
}

/** Checks and freezes. @throws CprgError `invalid_argument` */
export function defineProvider(
  { name, variables, acquire }: ProviderDefinition,
  placement: SandboxProvider["placement"],
): SandboxProvider {
  if (typeof name !== "string" || !PROVIDER_NAME.test(name)) {
    throw invalid(
      "name",
      `Cannot name a provider ${JSON.stringify(String(name).slice(0, 128))}`,
      "Lower-case letters, digits and hyphens, a letter first, at most 63",
    );
  }
  if (typeof acquire !== "function") {
    throw invalid("acquire", `Cannot use provider "${name}": acquire is not a function`);
  }
  return Object.freeze({
    name,
    placement,
    ...(variables === undefined ? {} : { variables: Object.freeze({ ...variables }) }),
    acquire,
  });
}
