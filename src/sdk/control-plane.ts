/** The control plane as a library, for Node 20 and newer and for Bun: `cprg/control-plane`. */

// biome-ignore-all lint/performance/noBarrelFile: what a package exports is listed in one place
import "./node-runtime.ts";

export type {
  MintedWorkerToken,
  Runner,
  RunnerContext,
  SubmitOptions,
  TaskControl,
  TaskView,
  WorkerTokenRequest,
  WorkerTokenView,
  WorkerView,
} from "../control-plane/contract.ts";
export { ControlPlane } from "../control-plane/control-plane.ts";
export type {
  ControlPlaneCreateOptions,
  ControlPlaneOptions,
} from "../control-plane/control-plane-options.ts";
export { type AgentOptions, agentRunner } from "../control-plane/runners/agent.ts";
export type { AgentBudget } from "../control-plane/runners/agent-budget.ts";
export { shellRunner } from "../control-plane/runners/shell.ts";
export { CprgError, type ErrorCode } from "../core/errors.ts";
export type { SandboxLease } from "../provider/contract.ts";
