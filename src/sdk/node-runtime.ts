/**
 * What Node 20 lacks of the language that is used here; newer ones and Bun have it. To be imported
 * before anything else.
 */

interface Resolvers<T> {
  readonly promise: Promise<T>;
  readonly resolve: (value: T | PromiseLike<T>) => void;
  readonly reject: (reason?: unknown) => void;
}

/** ECMAScript 2024, section 27.2.4.8. */
function withResolvers<T>(this: PromiseConstructor): Resolvers<T> {
  let resolve: Resolvers<T>["resolve"] = () => undefined;
  let reject: Resolvers<T>["reject"] = () => undefined;
  const promise = new Promise<T>((yes, no) => {
    resolve = yes;
    reject = no;
  });
  return { promise, resolve, reject };
}

const missing: readonly (readonly [object, PropertyKey, unknown])[] = [
  [Promise, "withResolvers", withResolvers],
  [Symbol, "dispose", Symbol.for("Symbol.dispose")],
  [Symbol, "asyncDispose", Symbol.for("Symbol.asyncDispose")],
];

for (const [owner, name, value] of missing) {
  if (name in owner) continue;
  Object.defineProperty(owner, name, { value, configurable: true, writable: true });
}
