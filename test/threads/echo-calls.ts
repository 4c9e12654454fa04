/** The calls that the worker of the tests answers. */
export type EchoCalls = {
	echo(value: unknown): unknown;
	/** Grouped: answers the bytes of the group. */
	sum(bytes: Uint8Array): number;
	/** Keeps the thread busy for some milliseconds. */
	pause(milliseconds: number): void;
	fail(argument: undefined): void;
	exit(code: number): void;
	/** Takes memory until none is left. */
	exhaust(argument: undefined): void;
	close(argument: undefined): void;
};
