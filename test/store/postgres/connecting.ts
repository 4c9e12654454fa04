import { onTestFinished } from "vitest";
import { readConfig } from "../../../src/config/config.ts";
import type { PostgresSettings } from "../../../src/store/database.ts";
import { type Connections, openConnections } from "../../../src/store/postgres/connections.ts";

/** Returns the settings that the service derives from a URL, with changes for a test. */
export function settingsOf(url: string, changes: Partial<PostgresSettings> = {}): PostgresSettings {
	const { database } = readConfig({ DATABASE_URL: url });
	if (database.engine !== "postgres") throw new Error(`${url} is no URL of PostgreSQL`);
	return { ...database, ...changes };
}

/** Opens connections that are closed when the test ends. Returns them and the messages that they log. */
export async function connected(url: string, changes: Partial<PostgresSettings> = {}) {
	const lines: string[] = [];
	const log = { error: (_: object, message: string) => void lines.push(message) };
	const connections: Connections = await openConnections(settingsOf(url, changes), log);
	onTestFinished(() => connections[Symbol.asyncDispose]());
	return { connections, lines };
}

/** Returns the members of a call's error that tests compare, or its result if it succeeds. */
export async function failureOf(call: Promise<unknown>): Promise<unknown> {
	try {
		return await call;
	} catch (error) {
		if (!(error instanceof Error)) throw error;
		return {
			type: error.constructor.name,
			...("kind" in error && { kind: error.kind }),
			message: error.message,
			...(error.cause instanceof Error && { cause: error.cause.message }),
		};
	}
}
