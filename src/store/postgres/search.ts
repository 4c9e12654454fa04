import { setTimeout as delay } from "node:timers/promises";
import type pg from "pg";
import { ServiceError } from "../../errors.ts";
import type { PostgresHost } from "./database-url.ts";
import { dial, type PostgresSettings } from "./dial.ts";
import { databaseError } from "./failures.ts";

/** Time between two attempts at one host, in milliseconds. */
const PAUSE = 250;

/** A server that takes writes. */
export interface Found {
	readonly host: PostgresHost;
	/** How the connection to it came about. */
	readonly options: pg.ClientConfig;
}

/**
 * Asks all hosts of a database, each again and again, until one takes writes. Each has its own rhythm, so that one that is
 * silent does not hold up the search.
 *
 * @param signal ends the search
 * @param onFailed told of `unavailable`, whose cause says what is wrong with each host: when all have failed, and from then
 *   on at each further failure
 * @returns undefined when the search was ended
 */
export async function search(
	settings: PostgresSettings,
	signal: AbortSignal,
	onFailed: (error: ServiceError) => void,
): Promise<Found | undefined> {
	const ended = new AbortController();
	const over = AbortSignal.any([signal, ended.signal]);
	const reasons = new Map<PostgresHost, string>();
	const seekers = settings.hosts.map((host) =>
		seek(settings, host, over, (reason) => {
			reasons.set(host, reason);
			if (reasons.size === settings.hosts.length) onFailed(awayError(reasons));
		}),
	);
	const stopped = Promise.withResolvers<undefined>();
	over.addEventListener("abort", () => stopped.resolve(undefined));
	if (over.aborted) stopped.resolve(undefined);
	try {
		return await Promise.race([...seekers, stopped.promise]);
	} finally {
		ended.abort();
	}
}

/** Never fails, and settles only when it has found. */
async function seek(
	settings: PostgresSettings,
	host: PostgresHost,
	over: AbortSignal,
	onFailed: (reason: string) => void,
): Promise<Found> {
	while (!over.aborted) {
		try {
			const { client, options } = await dial(settings, host);
			client.end().catch(() => undefined);
			return { host, options };
		} catch (error) {
			const { cause } = databaseError(error);
			if (!over.aborted) onFailed(cause instanceof Error ? cause.message : "failed");
		}
		await delay(PAUSE, undefined, { signal: over }).catch(() => undefined);
	}
	return new Promise(() => undefined);
}

function awayError(reasons: ReadonlyMap<PostgresHost, string>): ServiceError {
	const text = [...reasons].map(([{ host, port }, reason]) => `${host}:${port}: ${reason}`).join("; ");
	return new ServiceError("unavailable", "no server of the database takes writes", { cause: new Error(text) });
}
