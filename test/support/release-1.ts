import { readFileSync } from "node:fs";
import { zstdDecompressSync } from "node:zlib";
import { expect } from "vitest";
import { ServiceProcess } from "./child.ts";
import { KEY } from "./service.ts";

/**
 * A database of release 1.0.0, of each engine, and what the release answered. It had got posts of agent servers about 20
 * conversations, of two owners and none, and had pruned, erased and refused some.
 */

/** The keys with which the service of the answers ran. */
const KEYS = {
	ENCRYPTION_KEY: Buffer.alloc(32, 7).toString("base64"),
	ACCESS_KEYS: `test:${KEY}:ingest+read+secrets+keys+forward,team:team-key-of-the-fixture:ingest+read@team-a`,
};

/** Reads a file of the folder of the release, without its compression. */
export function ofRelease1(name: "sqlite.db" | "postgres.sql" | "answers.jsonl"): Buffer {
	return zstdDecompressSync(readFileSync(new URL(`../fixtures/release-1/${name}.zst`, import.meta.url)));
}

/**
 * Returns what is answered now in place of an answer of the release. It left out a cost of 0 where it stored a summary, so
 * that counts as not reported, as the cost of a conversation without a record does.
 */
function answeredNow(text: string): string {
	return text
		.replaceAll('"accumulated_cost":0,"tokens":', '"accumulated_cost":null,"tokens":')
		.replaceAll('"accumulated_cost":0,"created_at":', '"accumulated_cost":null,"tokens":null,"created_at":');
}

/** The numbers that reports of usage did not have. */
const ADDED = /,"conversations_without_cost":\d+,"conversations_without_tokens":\d+(?=\}$)/;

/** Expects that a service with a database gives the answers of the release, also after its views were reset. */
export async function expectAnswersOfRelease1(url: string): Promise<void> {
	const answers = ofRelease1("answers.jsonl")
		.toString()
		.trimEnd()
		.split("\n")
		.map((line): { key: "test" | "team"; path: string; status: number; text: string } => JSON.parse(line));
	expect(answers).toHaveLength(183);
	await using service = await ServiceProcess.start("", { ...KEYS, DATABASE_URL: url });
	for (const time of ["as started", "after a reset"]) {
		for (const { key, path, status, text } of answers) {
			const headers = { "X-Access-Token": key === "test" ? KEY : "team-key-of-the-fixture" };
			const answer = await fetch(service.http + path, { headers });
			expect({ time, path, status: answer.status, text: (await answer.text()).replace(ADDED, "") }).toEqual({
				...{ time, path, status, text: answeredNow(text) },
			});
		}
		expect(await ServiceProcess.run({ DATABASE_URL: url }, "views", "reset")).toEqual({
			code: 0,
			stdout: "The views were derived anew from what is stored.\n",
			stderr: "",
		});
	}
}
