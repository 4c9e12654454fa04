import { createSecretKey } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readExactJson } from "../../../src/record/json/exact-json.ts";
import { type ExactJson, type ExactJsonObject, isJsonObject, memberOf } from "../../../src/record/json/json-value.ts";
import { type CapturedPost, canonical, capturedSequences } from "../../support/fixtures.ts";
import { LiveService } from "./live-service.ts";

const sequences = capturedSequences();
const deleted = sequences.filter(({ posts }) => posts.some(isDeleting));

function isDeleting({ webhook, body }: CapturedPost): boolean {
	return webhook === "conversations" && memberOf(readExactJson(body), "execution_status") === "deleting";
}

/** Returns the status with the latest time, from either webhook. The times of all captured posts are in UTC. */
function lastStatus(posts: readonly CapturedPost[]): ExactJson {
	const reported = posts.flatMap(({ body: text }) => {
		const body = readExactJson(text);
		if (isJsonObject(body)) return { time: String(body.updated_at), status: body.execution_status ?? null };
		return (Array.isArray(body) ? body : []).filter(isJsonObject).flatMap(({ timestamp, key, value }) => {
			const status = (key === "full_state" && isJsonObject(value) ? value.execution_status : value) ?? null;
			return key === "full_state" || key === "execution_status" ? { time: String(timestamp), status } : [];
		});
	});
	const textOf = (time: string) => time.replace(/Z$/, "").padEnd("2026-01-01T00:00:00.000000".length, "0");
	return reported.toSorted((a, b) => (textOf(a.time) < textOf(b.time) ? -1 : 1)).at(-1)?.status ?? null;
}

async function replay(service: LiveService, id: string, posts: readonly CapturedPost[]): Promise<void> {
	for (const { webhook, body } of posts)
		if (webhook === "events") await service.batch(id, body);
		else await service.post(body);
}

function sorted(members: ExactJsonObject): unknown {
	return JSON.parse(canonical(members));
}

describe.each([
	{ kept: "encrypted", keys: [createSecretKey(Buffer.alloc(32, 7))] },
	{ kept: "redacted", keys: [] },
])("with secrets $kept", ({ keys }) => {
	let service: LiveService;
	beforeAll(async () => {
		service = await LiveService.open(keys);
	});
	afterAll(() => service[Symbol.asyncDispose]());

	test.each(deleted)(
		"$name: the record has the values that were reported last",
		async ({ conversationId: id, posts }) => {
			const last = posts.findLast(isDeleting);
			if (last === undefined) throw new TypeError("the conversation was not deleted");
			const others = posts.filter((post) => !isDeleting(post));
			await replay(service, id, others);
			const deleting = service.asStored(readExactJson(last.body));
			const expected = { ...deleting, execution_status: lastStatus(others) };
			expect(sorted((await service.record(id)) ?? {})).toEqual(sorted(expected));
			await replay(service, id, [last]);
			expect(await service.record(id)).toEqual(deleting);
			expect(service.logged).toEqual([]);
		},
	);
});
