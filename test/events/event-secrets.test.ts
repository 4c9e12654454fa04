import { createSecretKey } from "node:crypto";
import type { JsonObject } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { EventFormat } from "../../src/events/event-format.ts";
import { stringifyExactJson } from "../../src/record/json/exact-json.ts";
import type { ExactJson } from "../../src/record/json/json-value.ts";
import { RecordFormat } from "../../src/record/record-format.ts";
import { isCiphertext } from "../../src/record/secrets/cipher.ts";
import { RecordVault } from "../../src/record/secrets/record-vault.ts";
import { secretsForms } from "../../src/record/secrets/secret-walk.ts";
import type { NewEvent, ProtectedEvent } from "../../src/store/entries.ts";
import { REDACTED } from "../../src/userinfo.ts";
import { secretPlaces } from "../record/secrets/secret-places.ts";
import { SECRET_MEMBERS } from "../support/canaries.ts";
import { corpus, object } from "../support/fixtures.ts";

const ID = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
const CANARY = "canary-6d1f";
const records = new RecordFormat();
const key = (fill: number) => createSecretKey(Buffer.alloc(32, fill));
const encrypting = new EventFormat(records, [key(1)], "UTC");
const redacting = new EventFormat(records, [], "UTC");

const event = (members: JsonObject) => ({
	id: "a/b~c",
	timestamp: "2026-11-21T08:57:29",
	source: "environment",
	kind: "ConversationStateUpdateEvent",
	...members,
});

/** Parses a batch of one event and returns that event as the store receives it. */
function stored(format: EventFormat, json: ExactJson, conversationId = ID): NewEvent {
	const [first, ...others] = format.parse(conversationId, Buffer.from(stringifyExactJson([json]))).batch.events;
	if (first === undefined || others.length > 0) throw new TypeError("one event is expected");
	return first;
}

const opened = (form: (typeof secretsForms)[number], one: ProtectedEvent, format = encrypting): JsonObject =>
	object(JSON.parse(format.open(ID, one, form)));

/** Returns state updates that report a record: a full state, and one update for each member. */
function stateUpdates(record: JsonObject): JsonObject[] {
	const members = Object.entries(record).filter(([name]) => name !== "id");
	const single = members.map(([member, value]) => event({ key: member, value }));
	return [event({ key: "full_state", value: record }), ...single];
}

/** Asserts that the canary in an event is never stored, and shown only in plaintext if there is a key. */
function expectProtected(name: string, json: JsonObject): void {
	for (const format of [encrypting, redacting]) {
		const one = stored(format, json);
		expect({ name, found: Buffer.from(one.text).includes(CANARY) }).toEqual({ name, found: false });
		const redacted = format.open(ID, one, "redacted");
		expect({ name, text: redacted }).not.toMatchObject({ text: expect.stringContaining("enc:v1:") });
		expect({ name, found: redacted.includes(CANARY) }).toEqual({ name, found: false });
		const plaintext = format.open(ID, one, "plaintext");
		expect({ name, text: plaintext }).toEqual({ name, text: format === encrypting ? JSON.stringify(json) : redacted });
		const encrypted = format.open(ID, one, "encrypted");
		expect({ name, text: encrypted }).toEqual({ name, text: Buffer.from(one.text).toString() });
		expect({ name, secrets: one.secrets.length > 0 }).toEqual({ name, secrets: true });
	}
}

describe("a secret in a state update is not stored in plaintext", () => {
	test("at any place of the record that holds a secret", () => {
		const places = secretPlaces();
		expect(places.length).toBeGreaterThan(100);
		for (const { name, plant } of places)
			for (const json of stateUpdates(object(records.toJson(plant(CANARY)))))
				if (JSON.stringify(json).includes(CANARY)) expectProtected(name, json);
	});

	test.each(Object.entries(SECRET_MEMBERS))("at this place: %s", (name, members) => {
		for (const json of stateUpdates(members(CANARY))) expectProtected(name, json);
	});

	test("in an invalid member, beside valid ones", () => {
		const broken: JsonObject[] = [
			{ agent: { kind: "Agent", llm: { model: 5, api_key: CANARY } } },
			{ agent: { kind: "Agent", mcp_config: { s: { url: 1, env: { ANY: CANARY }, headers: { any: CANARY } } } } },
			{ agent: { kind: "Agent", llm: 1, mcp_config: { s: { auth: { strategy: "x", deep: [{ any: CANARY }] } } } } },
			{ agent: { kind: "Agent", llm: 1, agent_context: { secrets: { A: CANARY, B: { value: CANARY } } } } },
			{ secret_registry: { secret_sources: { A: { kind: "StaticSecret", value: CANARY, any: CANARY }, B: 1 } } },
			{ workspace: { kind: "RemoteWorkspace", working_dir: 1, api_key: CANARY, host: `https://u:${CANARY}@h` } },
		];
		for (const members of broken)
			for (const json of stateUpdates({ ...members, tags: { a: "b" }, agent_state: { token: CANARY } }))
				if (JSON.stringify(json).includes(CANARY)) expectProtected(JSON.stringify(members), json);
	});

	test("in a member under its alias", () => {
		for (const name of ["proxylib_extra_body", "litellm_extra_body"])
			for (const json of stateUpdates({ agent: { kind: "Agent", llm: { model: "m", [name]: { api_key: CANARY } } } }))
				expectProtected(name, json);
	});
});

describe("a secret anywhere else in an event is not stored in plaintext", () => {
	test.each<[string, JsonObject]>([
		["a nested member with the name of a secret", { action: { headers: { Authorization: `Bearer ${CANARY}` } } }],
		["a member of the event itself", { api_key: CANARY }],
		["a list under the name of a secret", { tokens: [CANARY, { deep: CANARY }] }],
		["MCP servers", { config: { mcpServers: { s: { env: { ANY: CANARY, NUMBER: 12345 } } } } }],
		["a URL in a string", { tool: { arguments: `["https://u:${CANARY}@h/", "ftp://a:${CANARY}@h"]` } }],
		["a member named key of another kind of event", { key: CANARY }],
		[
			"a state update whose key is not a string",
			{ kind: "ConversationStateUpdateEvent", key: [CANARY], value: { token: CANARY } },
		],
		[
			"a full state that is not an object",
			{ kind: "ConversationStateUpdateEvent", key: "full_state", value: [{ token: CANARY }] },
		],
		[
			"a state update of a member that the record does not name",
			{ kind: "ConversationStateUpdateEvent", key: "vendor_token", value: CANARY },
		],
		["a member named __proto__", JSON.parse(`{"__proto__":{"cookie":"${CANARY}"}}`)],
		[
			"a state update of __proto__",
			{ kind: "ConversationStateUpdateEvent", key: "__proto__", value: { cookie: CANARY } },
		],
		[
			"a state update, beside its value",
			{ kind: "ConversationStateUpdateEvent", key: "tags", value: {}, secret: CANARY },
		],
	])("in %s", (name, members) => {
		expectProtected(name, event({ kind: "ActionEvent", ...members }));
	});

	test("in a number, and the plaintext form has all of its digits", () => {
		const json = { ...event({ kind: "K" }), mcpServers: { s: { env: { A: 2n ** 70n, B: 1.5, C: -7 } } } };
		const one = stored(encrypting, json);
		expect(one.secrets).toEqual(["A", "B", "C"].map((name) => `/mcpServers/s/env/${name}`));
		expect(encrypting.open(ID, one, "plaintext")).toBe(stringifyExactJson(json));
		expect(opened("redacted", one)).toMatchObject({
			mcpServers: { s: { env: { A: REDACTED, B: REDACTED, C: REDACTED } } },
		});
	});
});

describe("a full state is redacted exactly as its record is", () => {
	const vault = new RecordVault(records, []);
	test.each(corpus())("$name", ({ json }) => {
		const { value } = opened("redacted", stored(encrypting, event({ key: "full_state", value: json })));
		const { bytes } = vault.protect(records.fromJson(json));
		expect(records.toJson(records.fromJson(object(value)))).toEqual(records.toJson(vault.open(bytes, "redacted")));
	});
});

test("an event without secrets is stored unchanged, and returned without being parsed", () => {
	const json = event({
		key: "agent",
		value: { kind: "Agent", llm: { model: "m", api_key: REDACTED, aws_access_key_id: "" } },
	});
	const one = stored(encrypting, json);
	expect(one.secrets).toEqual([]);
	for (const form of secretsForms) expect(encrypting.open(ID, one, form)).toBe(JSON.stringify(json));
	const noJson = { ...one, text: Buffer.from("as it is") };
	for (const form of secretsForms) expect(encrypting.open(ID, noJson, form)).toBe("as it is");
});

test("the member named key of a state update is not a secret", () => {
	const json = event({ key: "tags", value: { a: "b" } });
	expect(Buffer.from(stored(redacting, json).text).toString()).toBe(JSON.stringify(json));
});

describe("ciphertexts in events", () => {
	const json = event({ kind: "K", token: "one", other: { password: "two" } });

	test("look like those in records, and differ each time that a secret is encrypted", () => {
		const [one, again] = [stored(encrypting, json), stored(encrypting, json)];
		const { token } = opened("encrypted", one);
		expect([isCiphertext(String(token)), opened("encrypted", again).token === token]).toEqual([true, false]);
		expect(one.secrets).toEqual(["/token", "/other/password"]);
	});

	test("cannot be decrypted at another place, in another event or conversation, or without the key", () => {
		const one = stored(encrypting, json);
		const changed = (by: (text: JsonObject) => JsonObject): ProtectedEvent => ({
			...one,
			text: Buffer.from(JSON.stringify(by(object(JSON.parse(Buffer.from(one.text).toString()))))),
		});
		const lost = expect.objectContaining({ name: "ServiceError", kind: "data_loss" });
		const swapped = changed((text) => ({
			...text,
			token: object(text.other).password ?? null,
			other: { password: text.token ?? null },
		}));
		const renamed = changed((text) => ({ ...text, id: "another" }));
		const cut = changed((text) => ({ ...text, token: String(text.token).slice(0, -1) }));
		for (const bad of [swapped, renamed, cut]) {
			expect(() => encrypting.open(ID, bad, "plaintext")).toThrow(lost);
			expect(opened("redacted", bad)).toMatchObject({ token: REDACTED, other: { password: REDACTED } });
		}
		const otherId = ID.replace("7", "8");
		expect(() => encrypting.open(otherId, one, "plaintext")).toThrow(lost);
		const otherKey = new EventFormat(records, [key(2)], "UTC");
		expect(() => otherKey.open(ID, one, "plaintext")).toThrow(lost);
		expect(new EventFormat(records, [key(2), key(1)], "UTC").open(ID, one, "plaintext")).toBe(JSON.stringify(json));
	});

	test("that a sender posts are encrypted where a secret is, and kept as text elsewhere", () => {
		const posted = String(opened("encrypted", stored(encrypting, json)).token);
		const again = event({ kind: "K", token: posted, note: posted, url: `https://${posted}@h/` });
		const one = stored(encrypting, again);
		expect(one.secrets).toEqual(["/token", "/url"]);
		expect(encrypting.open(ID, one, "plaintext")).toBe(JSON.stringify(again));
		expect(opened("encrypted", one).token).not.toBe(posted);
	});
});

test("an event with another redaction version is searched for secrets again when it is read", () => {
	const json = event({ kind: "K", token: "one", url: "https://u:p@h/" });
	const old: ProtectedEvent = {
		text: Buffer.from(JSON.stringify({ ...json, id: "old" })),
		secrets: [],
		redactionVersion: 1,
	};
	const hidden = { ...json, id: "old", token: REDACTED, url: `https://${REDACTED}@h/` };
	expect(opened("redacted", old)).toEqual(hidden);
	expect(opened("encrypted", old)).toEqual(hidden);
	expect(opened("plaintext", old)).toEqual({ ...json, id: "old" });

	const one = stored(encrypting, json);
	const known = { ...one, redactionVersion: 1 };
	for (const form of secretsForms) expect(opened(form, known)).toEqual(opened(form, one));
});
