import { z } from "zod";

const message = z.object({ request: z.unknown() });

/** Tells the parent process that this process is ready. */
export function announce(ready: unknown): void {
	process.send?.({ value: ready });
}

/** Announces this process and answers the parent's requests, one at a time. */
export function serve<Schema extends z.ZodType>(
	schema: Schema,
	answer: (request: z.output<Schema>) => Promise<unknown>,
): void {
	process.on("message", (data) => {
		Promise.try(() => answer(schema.parse(message.parse(data).request))).then(
			(value) => process.send?.({ value }),
			(error: unknown) =>
				process.send?.({ failure: error instanceof Error ? (error.stack ?? error.message) : String(error) }),
		);
	});
	// Without its parent the process has nothing to do.
	process.on("disconnect", () => process.exit(0));
	announce({});
}
