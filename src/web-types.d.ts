/** A type of the DOM that Connect's declarations name. */
type HeadersInit = Bun.HeadersInit;
