import { onTestFinished } from "vitest";
import { readConfig } from "../../../src/config/config.ts";
import { type Connections, openConnections } from "../../../src/store/postgres/connections.ts";
import type { PostgresSettings } from "../../../src/store/postgres/dial.ts";

/** Settings as the environment gives them, with limits that suit a test. */
export function settingsOf(url: string, changes: Partial<PostgresSettings> = {}): PostgresSettings {
	const { database } = readConfig({ DATABASE_URL: url });
	if (database.engine !== "postgres") throw new Error(`${url} is no URL of PostgreSQL`);
	return { ...database, ...changes };
}

/** Connections that end with the test, and what they log. */
export async function connected(url: string, changes: Partial<PostgresSettings> = {}) {
	const lines: string[] = [];
	const log = { error: (_: object, message: string) => void lines.push(message) };
	const connections: Connections = await openConnections(settingsOf(url, changes), log);
	onTestFinished(() => connections[Symbol.asyncDispose]());
	return { connections, lines };
}

/** What a call fails with, and of that what a test compares. */
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
