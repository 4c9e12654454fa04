import { createSecretKey } from "node:crypto";
import { clone, create, fromBinary, type JsonObject, type JsonValue, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type ConversationInfo, ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import { ServiceError } from "../../../src/errors.ts";
import { toValue } from "../../../src/record/json/json-form.ts";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { isCiphertext } from "../../../src/record/secrets/cipher.ts";
import { MAX_SECRETS, RecordVault } from "../../../src/record/secrets/record-vault.ts";
import { deriveSecretWalk, secretsForms } from "../../../src/record/secrets/secret-walk.ts";
import { REDACTED } from "../../../src/userinfo.ts";
import { SECRET_MEMBERS } from "../../support/canaries.ts";
import { object, record } from "../../support/fixtures.ts";
import { violationsOf } from "../../support/refusal.ts";
import { urlPlaces } from "../../support/url-places.ts";
import { records } from "./random-record.ts";
import { CONVERSATION_ID, secretPlaces } from "./secret-places.ts";

const format = new RecordFormat();
const walk = deriveSecretWalk(format.plan);
const key = (fill: number) => createSecretKey(Buffer.alloc(32, fill));
const redacting = new RecordVault(format, []);
const encrypting = new RecordVault(format, [key(1)]);

const CANARY = "canary-6d1f";
const DATA_LOSS = expect.objectContaining({ name: "ServiceError", kind: "data_loss" });

/** Protects a copy of a record and returns its bytes. */
function stored(vault: RecordVault, record: ConversationInfo): Uint8Array {
	return vault.protect(clone(ConversationInfoSchema, record)).bytes;
}

function hex(record: ConversationInfo): string {
	return Buffer.from(toBinary(ConversationInfoSchema, record)).toString("hex");
}

function redactedCopy(record: ConversationInfo): ConversationInfo {
	const copy = clone(ConversationInfoSchema, record);
	walk(copy, () => REDACTED);
	return copy;
}

/** Returns a JSON value in which every string that meets `is` is replaced by `by`. */
function replaceStrings(json: JsonValue, is: (text: string) => boolean, by: string): JsonValue {
	if (typeof json === "string") return is(json) ? by : json;
	if (Array.isArray(json)) return json.map((item) => replaceStrings(item, is, by));
	if (typeof json !== "object" || json === null) return json;
	return Object.fromEntries(Object.entries(json).map(([name, member]) => [name, replaceStrings(member, is, by)]));
}

/** Returns a native agent's record with secrets in fields, in free-form JSON and in an unnamed member. */
function nativeRecord(llm: JsonObject = { api_key: "one", aws_access_key_id: "two" }, id = CONVERSATION_ID) {
	return format.fromJson({
		id,
		workspace: { kind: "RemoteWorkspace", working_dir: "/w", host: "http://h", api_key: "three" },
		agent: { kind: "Agent", llm: { model: "m", ...llm } },
		agent_state: { token: "four" },
		vendor_token: ["five"],
	});
}

test("a secret at any place is never stored unprotected, and only the plaintext form shows it", () => {
	const places = secretPlaces();
	expect(places.length).toBeGreaterThan(100);
	const isCanary = (text: string) => text === CANARY;
	for (const { name, plant } of places) {
		const record = plant(CANARY);
		const json = object(format.toJson(record));
		const redacted = replaceStrings(json, isCanary, REDACTED);
		expect({ name, json: redacted }).not.toEqual({ name, json });

		const bytes = stored(encrypting, record);
		expect({ name, found: Buffer.from(bytes).includes(CANARY) }).toEqual({ name, found: false });
		const read = { name, json: object(format.toJson(encrypting.open(bytes, "redacted"))) };
		expect(read).toEqual({ name, json: redacted });
		const encrypted = object(format.toJson(encrypting.open(bytes, "encrypted")));
		expect({ name, json: replaceStrings(encrypted, isCiphertext, CANARY) }).toEqual({ name, json });
		expect(JSON.stringify(encrypted)).not.toContain(CANARY);
		expect({ name, hex: hex(encrypting.open(bytes, "plaintext")) }).toEqual({ name, hex: hex(record) });

		const kept = stored(redacting, record);
		expect({ name, found: Buffer.from(kept).includes(CANARY) }).toEqual({ name, found: false });
		for (const form of secretsForms)
			expect({ name, form, json: format.toJson(redacting.open(kept, form)) }).toEqual({ name, form, json: redacted });
	}
});

test.each([
	[
		"whose names alone say so",
		Object.entries(SECRET_MEMBERS).map(([name, members]) => ({ name, json: members(CANARY) })),
	],
	["in a URL", urlPlaces(format.plan).map(({ name, plant }) => ({ name, json: plant(CANARY) }))],
])("a secret %s is never stored unprotected, or shown redacted", (_, places) => {
	for (const { name, json } of places)
		for (const vault of [encrypting, redacting]) {
			const bytes = stored(vault, format.fromJson({ ...record(), ...json }));
			const shown = JSON.stringify(format.toJson(vault.open(bytes, "redacted")));
			const found = [Buffer.from(bytes).includes(CANARY), shown.includes(CANARY)];
			expect({ name, found }).toEqual({ name, found: [false, false] });
		}
});

test("any record is unchanged when read in plaintext, and has no secrets when read redacted", () => {
	fc.assert(
		fc.property(records, (record) => {
			const bytes = stored(encrypting, record);
			expect(hex(encrypting.open(bytes, "plaintext"))).toBe(hex(record));
			const redacted = hex(redactedCopy(record));
			expect(hex(encrypting.open(bytes, "redacted"))).toBe(redacted);
			expect(hex(redacting.open(bytes, "redacted"))).toBe(redacted);
			expect(hex(redacting.open(stored(redacting, record), "plaintext"))).toBe(redacted);
			expect(hex(redactedCopy(encrypting.open(bytes, "encrypted")))).toBe(redacted);
		}),
		{ numRuns: 100 },
	);
});

test("members are the same whether they are opened by themselves or with the whole record", () => {
	const names = fc.subarray(format.plan.fields.map(({ name }) => name));
	fc.assert(
		fc.property(records, names, fc.constantFrom(...secretsForms), (record, names, form) => {
			const bytes = stored(encrypting, record);
			const whole = format.membersToJson(encrypting.open(bytes, form), names);
			expect(format.membersToJson(encrypting.openMembers(bytes, names, form), names)).toEqual(whole);
		}),
		{ numRuns: 100 },
	);
	expect(() => encrypting.openMembers(Buffer.from([0x0a, 0x7f]), [], "redacted")).toThrow(DATA_LOSS);
});

test("the encrypted form is the stored record", () => {
	const bytes = stored(encrypting, nativeRecord());
	expect(Buffer.from(toBinary(ConversationInfoSchema, encrypting.open(bytes, "encrypted")))).toEqual(
		Buffer.from(bytes),
	);
});

test("a secret that looks like a ciphertext is protected like any other", () => {
	const place = (record: ConversationInfo) =>
		record.agent?.kind.case === "agent" ? record.agent.kind.value.llm?.apiKey : undefined;
	// A ciphertext of this very place, as a client has it that reads the encrypted form and posts it.
	const reposted = place(encrypting.open(stored(encrypting, nativeRecord()), "encrypted")) ?? "";
	expect(isCiphertext(reposted)).toBe(true);
	for (const secret of [reposted, "enc:v1:", "enc:v1:AAAAAAAAAAA:AAAA"]) {
		const bytes = stored(encrypting, nativeRecord({ api_key: secret }));
		expect(place(encrypting.open(bytes, "plaintext"))).toBe(secret);
		expect(place(encrypting.open(bytes, "encrypted"))).not.toBe(secret);
		expect(place(encrypting.open(bytes, "redacted"))).toBe(REDACTED);
		expect(place(redacting.open(stored(redacting, nativeRecord({ api_key: secret })), "encrypted"))).toBe(REDACTED);
	}
});

test("redacted and empty secrets are stored unchanged, without encryption", () => {
	const record = nativeRecord({ api_key: REDACTED, aws_session_token: "", extra_headers: { a: REDACTED, b: "" } });
	record.workspace = undefined;
	record.agentState = undefined;
	record.unnamedMembers = {};
	const { bytes } = encrypting.protect(clone(ConversationInfoSchema, record));
	expect(Buffer.from(bytes)).toEqual(Buffer.from(toBinary(ConversationInfoSchema, record)));
	for (const form of secretsForms) expect(hex(encrypting.open(bytes, form))).toBe(hex(record));
});

test("ciphertexts that were swapped, moved or changed fail only reads in plaintext", () => {
	const bytes = stored(encrypting, nativeRecord());
	const alter = (change: (record: ConversationInfo) => void): Uint8Array => {
		const record = fromBinary(ConversationInfoSchema, bytes);
		change(record);
		return toBinary(ConversationInfoSchema, record);
	};
	const llmOf = (record: ConversationInfo) => {
		const agent = record.agent?.kind;
		if (agent?.case !== "agent" || agent.value.llm === undefined) throw new Error("the record has an LLM");
		return agent.value.llm;
	};
	const altered = [
		alter((record) => {
			const llm = llmOf(record);
			[llm.apiKey, llm.awsAccessKeyId] = [llm.awsAccessKeyId ?? "", llm.apiKey ?? ""];
		}),
		alter((record) => {
			record.id = "7c9e6679-7425-40de-944b-e07fc1f90ae8";
		}),
		alter((record) => {
			llmOf(record).apiKey += "A";
		}),
	];
	const redacted = format.toJson(redactedCopy(nativeRecord()));
	for (const stored of altered) {
		expect(() => encrypting.open(stored, "plaintext")).toThrow(DATA_LOSS);
		expect(format.toJson(encrypting.open(stored, "redacted"))).toMatchObject({ agent: redacted.agent ?? null });
	}
	// As a release stored it whose rules did not find it.
	const unprotected = alter((record) => {
		llmOf(record).apiKey = "a plain secret";
	});
	const shown = secretsForms.map((form) => JSON.stringify(format.toJson(encrypting.open(unprotected, form))));
	expect(shown.map((json) => json.includes("a plain secret"))).toEqual(
		secretsForms.map((form) => form === "plaintext"),
	);
});

test("a ciphertext with any byte after its prefix changed is refused instead of decrypted to a wrong secret", () => {
	const bytes = stored(encrypting, nativeRecord());
	const places: number[] = [];
	walk(encrypting.open(bytes, "encrypted"), (ciphertext) => {
		const start = Buffer.from(bytes).indexOf(String(ciphertext));
		for (let offset = "enc:v1:".length; offset < String(ciphertext).length; offset++) places.push(start + offset);
		return ciphertext;
	});
	expect(places.length).toBeGreaterThan(200);
	for (const place of places) {
		const changed = Buffer.from(bytes);
		// A letter with another lowest bit: still ASCII, so the record itself can be read.
		changed[place] = (changed[place] ?? 0) ^ 1;
		expect(() => encrypting.open(changed, "plaintext")).toThrow(DATA_LOSS);
	}
});

test("without the key, plaintext is refused with the id of the key, and the other forms can be read", () => {
	const record = create(ConversationInfoSchema, { id: CONVERSATION_ID, agentState: { token: "t" } });
	const bytes = stored(encrypting, record);
	const id = /enc:v1:([\w-]+):/.exec(Buffer.from(bytes).toString("latin1"))?.[1];
	const missing = new ServiceError(
		"data_loss",
		`The secret /agent_state/token of conversation ${CONVERSATION_ID} cannot be decrypted: no encryption key with the id ${id} is configured`,
	);
	for (const vault of [redacting, new RecordVault(format, [key(2)])]) {
		expect(() => vault.open(bytes, "plaintext")).toThrow(missing);
		expect(hex(vault.open(bytes, "redacted"))).toBe(hex(redactedCopy(record)));
		expect(hex(vault.open(bytes, "encrypted"))).toBe(Buffer.from(bytes).toString("hex"));
	}
	expect(hex(new RecordVault(format, [key(2), key(1)]).open(bytes, "plaintext"))).toBe(hex(record));
});

test("openEncoded returns a stored record without ciphertexts as it is, in every form", () => {
	const secret = create(ConversationInfoSchema, { id: CONVERSATION_ID, agentState: { token: "t" } });
	const harmless = create(ConversationInfoSchema, { id: CONVERSATION_ID, agentState: { token: "", other: "t" } });
	for (const { bytes, ...versions } of [
		redacting.protect(clone(ConversationInfoSchema, secret)),
		encrypting.protect(clone(ConversationInfoSchema, harmless)),
	])
		for (const vault of [redacting, encrypting])
			for (const form of secretsForms) expect(vault.openEncoded(bytes, versions, form)).toBe(bytes);
});

test("openEncoded returns the bytes of the record that open returns, in every form", () => {
	const { bytes, ...versions } = encrypting.protect(
		create(ConversationInfoSchema, { id: CONVERSATION_ID, agentState: { token: "t" } }),
	);
	expect(versions.redactionVersion).toBe(0);
	for (const form of secretsForms)
		expect(Buffer.from(encrypting.openEncoded(bytes, versions, form)).toString("hex")).toBe(
			hex(encrypting.open(bytes, form)),
		);
	expect(Buffer.from(encrypting.openEncoded(bytes, versions, "redacted")).includes("enc:")).toBe(false);
});

test("a record that was stored with another redaction version is redacted when read", () => {
	const bytes = toBinary(ConversationInfoSchema, create(ConversationInfoSchema, { agentState: { token: CANARY } }));
	const { redactionVersion } = redacting.protect(create(ConversationInfoSchema));
	for (const other of [0, redactionVersion + 1]) {
		const versions = { redactionVersion: other };
		expect(Buffer.from(redacting.openEncoded(bytes, versions, "redacted")).includes(CANARY)).toBe(false);
	}
});

test("bytes that are not a record fail with data_loss", () => {
	for (const form of secretsForms)
		for (const bytes of [Buffer.from([0xff]), Buffer.from("no record at all")])
			expect(() => encrypting.open(bytes, form)).toThrow(DATA_LOSS);
});

describe("two stored records are the same", () => {
	const base = { id: CONVERSATION_ID, tags: { a: "1", b: "2" }, agentState: { x: [1, { p: 0, q: null }], y: "t" } };
	const unnamed = { "/news": toValue({ a: 1, b: 0 }), "/more": toValue(null) };
	const one = create(ConversationInfoSchema, { ...base, unnamedMembers: unnamed });
	const other = create(ConversationInfoSchema, {
		id: CONVERSATION_ID,
		tags: { b: "2", a: "1" },
		agentState: { y: "t", x: [1, { q: null, p: -0 }] },
		unnamedMembers: { "/more": toValue(null), "/news": toValue({ b: -0, a: 1 }) },
	});

	test.each([
		["with a key", encrypting],
		["without a key", redacting],
	])("if they differ only in the order of map entries and the sign of zero, %s", (_, vault) => {
		expect(stored(vault, one)).not.toEqual(stored(vault, other));
		expect(vault.isSame(stored(vault, one), stored(vault, other))).toBe(true);
	});

	test("if their secrets are the same in plaintext, for which the key is needed", () => {
		const again = [nativeRecord(), nativeRecord()].map((record) => stored(encrypting, record));
		const changed = stored(encrypting, nativeRecord({ api_key: "other", aws_access_key_id: "two" }));
		const [first, second] = again;
		if (first === undefined || second === undefined) throw new Error("two records were stored");
		expect(first).not.toEqual(second);
		expect(encrypting.isSame(first, second)).toBe(true);
		expect(encrypting.isSame(first, changed)).toBe(false);
		expect(new RecordVault(format, [key(2)]).isSame(first, second)).toBe(false);
	});

	test("only if no member differs", () => {
		for (const change of [{ title: "t" }, { tags: { a: "1" } }, { agentState: { x: [1], y: "t" } }]) {
			const changed = create(ConversationInfoSchema, { ...base, ...change });
			expect(redacting.isSame(stored(redacting, one), stored(redacting, changed))).toBe(false);
		}
	});
});

test("a record with more than the maximum number of secrets is refused", () => {
	const withSecrets = (count: number) =>
		create(ConversationInfoSchema, {
			id: CONVERSATION_ID,
			agentState: { tokens: Array.from({ length: count }, (_, index) => `secret ${index}`) },
		});
	for (const vault of [redacting, encrypting]) {
		const bytes = stored(vault, withSecrets(MAX_SECRETS));
		expect(vault.open(bytes, "redacted").agentState).toEqual({ tokens: Array(MAX_SECRETS).fill(REDACTED) });
		expect(violationsOf(() => stored(vault, withSecrets(MAX_SECRETS + 1)))).toEqual([
			{ path: [], type: "value_error", message: "Value error, more than 10000 secrets" },
		]);
	}
});

test("a secret number is redacted to a string, and decrypted to the number", () => {
	const auth = { strategy: "totp", pin: 424242, drift: -1.5e-7, steps: [30], kept: true };
	const json = {
		id: CONVERSATION_ID,
		workspace: { kind: "LocalWorkspace", working_dir: "/w" },
		agent: { kind: "Agent", mcp_config: { s: { auth } } },
	};
	const record = format.fromJson(json);
	const authOf = (opened: ConversationInfo) =>
		object(object(object(object(format.toJson(opened).agent).mcp_config).s).auth);
	const bytes = stored(encrypting, record);
	expect(authOf(encrypting.open(bytes, "plaintext"))).toEqual(auth);
	const redacted = { strategy: REDACTED, pin: REDACTED, drift: REDACTED, steps: [REDACTED], kept: true };
	expect(authOf(encrypting.open(bytes, "redacted"))).toEqual(redacted);
	expect(authOf(redacting.open(stored(redacting, record), "plaintext"))).toEqual(redacted);
	const encrypted = authOf(encrypting.open(bytes, "encrypted"));
	expect(String(encrypted.pin)).toMatch(/^enc:v1:number:/);
});

describe("the user name and password of a URL", () => {
	const text = "curl https://user:pa@ss@host:1/x?a=b@c http://plain.test/ ssh://git@host redis://:pw@r mailto:a:b@c";
	const hidden = `curl https://${REDACTED}@host:1/x?a=b@c http://plain.test/ ssh://git@host redis://${REDACTED}@r mailto:a:b@c`;
	const record = () =>
		format.fromJson({
			id: CONVERSATION_ID,
			workspace: { kind: "RemoteWorkspace", working_dir: "/w", host: text },
			agent: { kind: "ACPAgent", acp_command: ["x", text], llm: { base_url: text } },
			title: text,
			agent_state: { list: [{ address: text }] },
			news: text,
			more: { inside: [text] },
			blocked_actions: { a: text },
		});

	test("are redacted in every string, with or without a key", () => {
		const expected = JSON.parse(JSON.stringify(format.toJson(record())).replaceAll(text, hidden));
		for (const vault of [redacting, encrypting]) {
			const { bytes, redactionVersion } = vault.protect(record());
			expect(Buffer.from(bytes).includes("pa@ss")).toBe(false);
			expect(format.toJson(vault.open(bytes, "redacted"))).toEqual(expected);
			const encoded = vault.openEncoded(bytes, { redactionVersion }, "redacted");
			expect(format.toJson(fromBinary(ConversationInfoSchema, encoded))).toEqual(expected);
		}
	});

	test("are encrypted if there is a key, and decrypted in plaintext", () => {
		const bytes = stored(encrypting, record());
		expect(format.toJson(encrypting.open(bytes, "plaintext"))).toEqual(format.toJson(record()));
		const title = encrypting.open(bytes, "encrypted").title ?? "";
		expect(title.replaceAll(/enc:v1:[\w-]+:[\w-]+/g, REDACTED)).toBe(hidden);
	});
});
