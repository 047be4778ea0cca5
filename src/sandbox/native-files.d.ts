/** Files of ffi/ imported with `{ type: "file" }`: the import is their path. */

declare module "*.so" {
  const path: string;
  // biome-ignore lint/style/noDefaultExport: the bundler exports a file's path as the default
  export default path;
}

declare module "*/cprg-init" {
  const path: string;
  // biome-ignore lint/style/noDefaultExport: the bundler exports a file's path as the default
  export default path;
}
