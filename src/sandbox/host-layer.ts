/** One line of what `cprg doctor` says of a host. */

/** One thing that a host has or lacks. */
export interface HostLayer {
  readonly name: string;
  readonly ok: boolean;
  /** Whether nothing runs without it; otherwise the layer is weaker, as `detail` says. */
  readonly isRequired: boolean;
  readonly detail: string;
  /** What the operator can do; null when nothing is to be done. */
  readonly fix: string | null;
}
