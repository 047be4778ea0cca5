// Runs before every test file. `bun test` reports success when a test calls process.exit(0), so the
// call throws instead and the test that made it fails.

process.exit = (code?: number | string | null): never => {
  throw new Error(`process.exit(${code ?? ""}) was called during a test`);
};
