import { setTimeout as delay } from "node:timers/promises";
import type pg from "pg";
import { ServiceError } from "../../errors.ts";
import type { PostgresHost, PostgresSettings } from "../database.ts";
import { dial } from "./dial.ts";
import { databaseError } from "./failures.ts";

/** Milliseconds between two attempts to connect to one host. */
const RETRY_DELAY = 250;

/** The primary that a search has found. */
export interface Found {
	readonly host: PostgresHost;
	/** Options with which the connection to it succeeded. */
	readonly options: pg.ClientConfig;
}

/**
 * Tries all hosts of a database in parallel, each repeatedly, until one accepts writes. A host that does not respond does
 * not delay the attempts at the others.
 *
 * @param signal ends the search
 * @param onFailed called with an `unavailable` error, whose cause names the failure of each host: when all hosts have
 *   failed, and from then on after each further failure
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
	const attempts = settings.hosts.map((host) =>
		tryHost(settings, host, over, (reason) => {
			reasons.set(host, reason);
			if (reasons.size === settings.hosts.length) onFailed(allFailedError(reasons));
		}),
	);
	const stopped = Promise.withResolvers<undefined>();
	over.addEventListener("abort", () => stopped.resolve(undefined));
	if (over.aborted) stopped.resolve(undefined);
	try {
		return await Promise.race([...attempts, stopped.promise]);
	} finally {
		ended.abort();
	}
}

/** Tries one host until it accepts writes. Never rejects; stays pending when the search ends before. */
async function tryHost(
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
		await delay(RETRY_DELAY, undefined, { signal: over }).catch(() => undefined);
	}
	return new Promise(() => undefined);
}

function allFailedError(reasons: ReadonlyMap<PostgresHost, string>): ServiceError {
	const text = [...reasons].map(([{ host, port }, reason]) => `${host}:${port}: ${reason}`).join("; ");
	return new ServiceError("unavailable", "no server of the database accepts writes", { cause: new Error(text) });
}
