/** The whole suite, in the order in which it runs. */

import { ATTACK_LAYERS, type Attack } from "./attack.ts";
import { CGROUP_ATTACKS } from "./cgroup-attacks.ts";
import { DESCRIPTORS_ATTACKS } from "./descriptors-attacks.ts";
import { ENVIRONMENT_ATTACKS } from "./environment-attacks.ts";
import { IDENTITY_ATTACKS } from "./identity-attacks.ts";
import { LIMITS_ATTACKS } from "./limits-attacks.ts";
import { NAMESPACES_ATTACKS } from "./namespaces-attacks.ts";
import { NETWORK_ATTACKS } from "./network-attacks.ts";
import { RLIMITS_ATTACKS } from "./rlimits-attacks.ts";
import { ROOT_ATTACKS } from "./root-attacks.ts";
import { SECCOMP_ATTACKS } from "./seccomp-attacks.ts";
import { TERMINATION_ATTACKS } from "./termination-attacks.ts";
import { TRANSFER_ATTACKS } from "./transfer-attacks.ts";

/** Every attack, by layer in the order of {@link ATTACK_LAYERS}. */
export const ATTACKS: readonly Attack[] = [
  ...ROOT_ATTACKS,
  ...TRANSFER_ATTACKS,
  ...IDENTITY_ATTACKS,
  ...NAMESPACES_ATTACKS,
  ...CGROUP_ATTACKS,
  ...RLIMITS_ATTACKS,
  ...SECCOMP_ATTACKS,
  ...DESCRIPTORS_ATTACKS,
  ...ENVIRONMENT_ATTACKS,
  ...NETWORK_ATTACKS,
  ...TERMINATION_ATTACKS,
  ...LIMITS_ATTACKS,
].toSorted((one, other) => ATTACK_LAYERS.indexOf(one.layer) - ATTACK_LAYERS.indexOf(other.layer));
