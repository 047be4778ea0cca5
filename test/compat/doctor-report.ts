/** What `cprg doctor --json` prints. */

/** One layer of it. */
export interface DoctorLayer {
  readonly name: string;
  readonly ok: boolean;
  readonly required: boolean;
  readonly detail: string;
  readonly fix: string | null;
}

/** All layers. */
export function layersOf(json: string): readonly DoctorLayer[] {
  return (JSON.parse(json) as { readonly layers: readonly DoctorLayer[] }).layers;
}

/** One layer, or undefined where the report has none of that name. */
export function layerOf(json: string, name: string): DoctorLayer | undefined {
  return layersOf(json).find((layer) => layer.name === name);
}
