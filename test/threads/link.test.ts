import { describe, expect, it } from "vitest";
import { ServiceError } from "../../src/errors.ts";
import type { Failure } from "../../src/threads/failure.ts";
import { Link, type LinkLog } from "../../src/threads/link.ts";

type Request =
	| { readonly kind: "echo"; readonly value: string }
	| { readonly kind: "exit" }
	| { readonly kind: "close" };

const toError = ({ message }: Failure) =>
	new ServiceError("unavailable", "the store failed", { cause: new Error(message) });
const options = { whole: "the store", name: "test", data: undefined, toError };
const script = new URL("./link-worker.ts", import.meta.url);

function linked(): { link: Link<Request>; lines: unknown[]; echo: (value: string) => Promise<string> } {
	const lines: unknown[] = [];
	const keep = (fields: unknown, message?: unknown) => lines.push([fields, message]);
	const log: LinkLog = { error: keep, warn: keep, info: keep };
	const link = new Link<Request>({ ...options, script, log });
	const echo = (value: string) => link.send({ kind: "echo", value }, (answer: string) => answer);
	return { link, lines, echo };
}

describe("link to a worker", () => {
	it("answers each request with its own answer", async () => {
		const { link, echo } = linked();
		const values = Array.from({ length: 700 }, (_, n) => `value ${n}`);
		expect(await Promise.all(values.map(echo))).toEqual(values);
		await link.close({ kind: "close" });
	});

	it("fails what was under way when the worker ends, says so, and starts another for the next request", async () => {
		const { link, lines, echo } = linked();
		const failure = { name: "ServiceError", kind: "unavailable", message: "the store failed" };
		expect(await echo("before")).toBe("before");
		const outcomes = await Promise.allSettled([
			echo("with it"),
			link.send({ kind: "exit" }, () => undefined),
			echo("behind it"),
		]);
		expect(outcomes).toMatchObject([
			{ status: "fulfilled", value: "with it" },
			{ status: "rejected", reason: failure },
			{ status: "rejected", reason: failure },
		]);
		expect(lines).toMatchObject([[{ err: failure, operation: "test" }, "a thread of the store ended"]]);
		expect(await echo("after")).toBe("after");
		await link.close({ kind: "close" });
	});

	it("refuses requests after it was closed", async () => {
		const { link, echo } = linked();
		const last = echo("last");
		await link.close({ kind: "close" });
		expect(await last).toBe("last");
		await expect(echo("late")).rejects.toMatchObject({ kind: "unavailable", message: "the store is closed" });
	});

	it("fails requests when no worker can be started", async () => {
		const lines: unknown[] = [];
		const keep = (fields: unknown) => lines.push(fields);
		const missing = new URL("./no-such-worker.ts", import.meta.url);
		const log = { error: keep, warn: keep, info: keep };
		const link = new Link<Request>({ ...options, script: missing, log });
		await expect(link.send({ kind: "exit" }, () => undefined)).rejects.toMatchObject({ kind: "unavailable" });
		expect(lines).toHaveLength(1);
		await link.close({ kind: "close" });
	});
});
