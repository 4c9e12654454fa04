import { createSecretKey } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type ExactJson, type ExactJsonObject, stringifyExactJson } from "../../../src/record/json/exact-json.ts";
import { isJsonObject } from "../../../src/record/plan/plan.ts";
import { canonical, capturedConversations, type ReadPost } from "../../support/fixtures.ts";
import { LiveService } from "./plain-events.ts";

const conversations = capturedConversations();
const deleted = [...conversations].filter(([, posts]) => posts.some(isDeleting));

function isDeleting({ body }: ReadPost): boolean {
	return isJsonObject(body) && body.execution_status === "deleting";
}

/** The id of the conversation that posts are about. */
function idOf(posts: readonly ReadPost[]): string {
	for (const { body } of posts) {
		const [first] = Array.isArray(body) ? body : [body];
		const state = isJsonObject(first) && isJsonObject(first.value) ? first.value : first;
		if (isJsonObject(state) && typeof state.id === "string") return state.id;
	}
	throw new TypeError("no post names the conversation");
}

/** The status with the latest time, whichever webhook told it. The times of all captured posts are in UTC. */
function lastStatus(posts: readonly ReadPost[]): ExactJson {
	const told = posts.flatMap(({ body }) => {
		if (isJsonObject(body)) return { time: String(body.updated_at), status: body.execution_status ?? null };
		return (Array.isArray(body) ? body : []).filter(isJsonObject).flatMap(({ timestamp, key, value }) => {
			const status = (key === "full_state" && isJsonObject(value) ? value.execution_status : value) ?? null;
			return key === "full_state" || key === "execution_status" ? { time: String(timestamp), status } : [];
		});
	});
	const textOf = (time: string) => time.replace(/Z$/, "").padEnd("2026-01-01T00:00:00.000000".length, "0");
	return told.toSorted((a, b) => (textOf(a.time) < textOf(b.time) ? -1 : 1)).at(-1)?.status ?? null;
}

async function replay(service: LiveService, id: string, posts: readonly ReadPost[]): Promise<void> {
	for (const { webhook, body } of posts)
		if (webhook === "events") await service.batch(id, stringifyExactJson(body));
		else await service.post(stringifyExactJson(body));
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

	test.each(deleted)("%s: the record has what was told last", async (_, posts) => {
		const id = idOf(posts);
		const last = posts.findLast(isDeleting);
		if (last === undefined) throw new TypeError("the conversation was not deleted");
		const others = posts.filter((post) => !isDeleting(post));
		await replay(service, id, others);
		const deleting = service.asStored(last.body);
		const expected = { ...deleting, execution_status: lastStatus(others) };
		expect(sorted((await service.record(id)) ?? {})).toEqual(sorted(expected));
		await replay(service, id, [last]);
		expect(await service.record(id)).toEqual(deleting);
		expect(service.logged).toEqual([]);
	});
});

test("a full state that breaks the record's rules makes no record", async () => {
	await using service = await LiveService.open();
	const posts = conversations.get("big-numbers") ?? [];
	await replay(service, idOf(posts), posts);
	expect(posts.length).toBeGreaterThan(0);
	expect(await service.record(idOf(posts))).toBeUndefined();
});
