/** The calls that the worker thread of the tests answers. */
export type EchoCalls = {
	echo(value: unknown): unknown;
	/** Grouped: returns the number of bytes of all calls in the group. */
	sum(bytes: Uint8Array): number;
	/** Blocks the thread for a number of milliseconds. */
	pause(milliseconds: number): void;
	fail(argument: undefined): void;
	exit(code: number): void;
	/** Allocates memory until the heap is exhausted. */
	exhaust(argument: undefined): void;
	close(argument: undefined): void;
};
