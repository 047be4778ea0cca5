/** The methods that one side serves. One table serves any number of streams, also one after another. */

import { assert } from "../core/errors.ts";
import type {
  ClientStreamHandler,
  ClientStreamMethod,
  HandlerTable,
  Method,
  NoticeHandler,
  NoticeMethod,
  ServerStreamHandler,
  ServerStreamMethod,
  UnaryHandler,
  UnaryMethod,
} from "./contract.ts";

/** A method with its handler; the kinds keep the two together. */
export type Served =
  | { readonly method: UnaryMethod<object, object>; readonly handle: UnaryHandler<object, object> }
  | {
      readonly method: ServerStreamMethod<object, object>;
      readonly handle: ServerStreamHandler<object, object>;
    }
  | {
      readonly method: ClientStreamMethod<object, object>;
      readonly handle: ClientStreamHandler<object, object>;
    }
  | { readonly method: NoticeMethod<object>; readonly handle: NoticeHandler<object> };

/** Handlers by method name; a name can be added once, also while streams are open. */
export class Handlers implements HandlerTable {
  readonly #served = new Map<string, Served>();

  unary<Request, Response>(
    method: UnaryMethod<Request, Response>,
    handler: UnaryHandler<Request, Response>,
  ): this {
    return this.#add(method, handler);
  }

  serverStream<Request, Item>(
    method: ServerStreamMethod<Request, Item>,
    handler: ServerStreamHandler<Request, Item>,
  ): this {
    return this.#add(method, handler);
  }

  clientStream<Item, Response>(
    method: ClientStreamMethod<Item, Response>,
    handler: ClientStreamHandler<Item, Response>,
  ): this {
    return this.#add(method, handler);
  }

  notice<Request>(method: NoticeMethod<Request>, handler: NoticeHandler<Request>): this {
    return this.#add(method, handler);
  }

  get names(): readonly string[] {
    return [...this.#served.keys()].sort();
  }

  /** Method and handler of a name. */
  find(name: string): Served | undefined {
    return this.#served.get(name);
  }

  #add(method: Pick<Method<never, never, never>, "name">, handle: unknown): this {
    assert(!this.#served.has(method.name), `method ${method.name} is served twice`);
    assert(!method.name.startsWith("/internal/"), `${method.name} belongs to the mux`);
    this.#served.set(method.name, { method, handle } as unknown as Served);
    return this;
  }
}
