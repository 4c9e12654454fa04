import { createSecretKey } from "node:crypto";
import { clone, create, fromBinary, type JsonObject, type JsonValue, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import { type ConversationInfo, ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import { ServiceError } from "../../../src/errors.ts";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { isCiphertext } from "../../../src/record/secrets/cipher.ts";
import { RecordVault } from "../../../src/record/secrets/record-vault.ts";
import { deriveSecretWalk, REDACTED, secretsForms } from "../../../src/record/secrets/secret-walk.ts";
import { records } from "./random-record.ts";
import { CONVERSATION_ID, secretPlaces } from "./secret-places.ts";

const format = new RecordFormat();
const walk = deriveSecretWalk(format.plan);
const key = (fill: number) => createSecretKey(Buffer.alloc(32, fill));
const redacting = new RecordVault(format.plan, []);
const encrypting = new RecordVault(format.plan, [key(1)]);

const CANARY = "canary-6d1f";
const DATA_LOSS = expect.objectContaining({ name: "ServiceError", kind: "data_loss" });

/** Seals a copy. */
function sealed(vault: RecordVault, record: ConversationInfo): Uint8Array {
	return vault.seal(clone(ConversationInfoSchema, record)).bytes;
}

function hex(record: ConversationInfo): string {
	return Buffer.from(toBinary(ConversationInfoSchema, record)).toString("hex");
}

function redactedCopy(record: ConversationInfo): ConversationInfo {
	const copy = clone(ConversationInfoSchema, record);
	walk(copy, () => REDACTED);
	return copy;
}

/** The JSON form with every string for which `is` holds replaced. */
function replaceStrings(json: JsonValue, is: (text: string) => boolean, by: string): JsonValue {
	if (typeof json === "string") return is(json) ? by : json;
	if (Array.isArray(json)) return json.map((item) => replaceStrings(item, is, by));
	if (typeof json !== "object" || json === null) return json;
	return Object.fromEntries(Object.entries(json).map(([name, member]) => [name, replaceStrings(member, is, by)]));
}

/** A native agent's record with secrets in named fields, free-form JSON and an unnamed member. */
function nativeRecord(llm: JsonObject = { api_key: "one", aws_access_key_id: "two" }, id = CONVERSATION_ID) {
	return format.fromJson({
		id,
		workspace: { kind: "RemoteWorkspace", working_dir: "/w", host: "http://h", api_key: "three" },
		agent: { kind: "Agent", llm: { model: "m", ...llm } },
		agent_state: { token: "four" },
		vendor_token: ["five"],
	});
}

test("no secret of any place is stored or read by default, and plain text reads the very record", () => {
	const places = secretPlaces();
	expect(places.length).toBeGreaterThan(100);
	const isCanary = (text: string) => text === CANARY;
	for (const { name, plant } of places) {
		const record = plant(CANARY);
		const json = format.toJson(record);
		const redacted = replaceStrings(json, isCanary, REDACTED);
		expect({ name, json: redacted }).not.toEqual({ name, json });

		const bytes = sealed(encrypting, record);
		expect({ name, found: Buffer.from(bytes).includes(CANARY) }).toEqual({ name, found: false });
		const read = { name, json: format.toJson(encrypting.open(bytes, "redacted")) };
		expect(read).toEqual({ name, json: redacted });
		const encrypted = format.toJson(encrypting.open(bytes, "encrypted"));
		expect({ name, json: replaceStrings(encrypted, isCiphertext, CANARY) }).toEqual({ name, json });
		expect(JSON.stringify(encrypted)).not.toContain(CANARY);
		expect({ name, hex: hex(encrypting.open(bytes, "plaintext")) }).toEqual({ name, hex: hex(record) });

		const kept = sealed(redacting, record);
		expect({ name, found: Buffer.from(kept).includes(CANARY) }).toEqual({ name, found: false });
		for (const form of secretsForms)
			expect({ name, form, json: format.toJson(redacting.open(kept, form)) }).toEqual({ name, form, json: redacted });
	}
});

test("any record read in plain text is the record that was sealed, and read redacted has no secret", () => {
	fc.assert(
		fc.property(records, (record) => {
			const bytes = sealed(encrypting, record);
			expect(hex(encrypting.open(bytes, "plaintext"))).toBe(hex(record));
			const redacted = hex(redactedCopy(record));
			expect(hex(encrypting.open(bytes, "redacted"))).toBe(redacted);
			expect(hex(redacting.open(bytes, "redacted"))).toBe(redacted);
			expect(hex(redacting.open(sealed(redacting, record), "plaintext"))).toBe(redacted);
			expect(hex(redactedCopy(encrypting.open(bytes, "encrypted")))).toBe(redacted);
		}),
		{ numRuns: 100 },
	);
});

test("what is read encrypted is what is stored", () => {
	const bytes = sealed(encrypting, nativeRecord());
	expect(Buffer.from(toBinary(ConversationInfoSchema, encrypting.open(bytes, "encrypted")))).toEqual(
		Buffer.from(bytes),
	);
});

test("a secret that looks like a ciphertext is a secret like any other", () => {
	const place = (record: ConversationInfo) =>
		record.agent?.kind.case === "agent" ? record.agent.kind.value.llm?.apiKey : undefined;
	// A ciphertext of the very same place, as a client has it that reads encrypted and sends again what it read.
	const stolen = place(encrypting.open(sealed(encrypting, nativeRecord()), "encrypted")) ?? "";
	expect(isCiphertext(stolen)).toBe(true);
	for (const secret of [stolen, "enc:v1:", "enc:v1:AAAAAAAAAAA:AAAA"]) {
		const bytes = sealed(encrypting, nativeRecord({ api_key: secret }));
		expect(place(encrypting.open(bytes, "plaintext"))).toBe(secret);
		expect(place(encrypting.open(bytes, "encrypted"))).not.toBe(secret);
		expect(place(encrypting.open(bytes, "redacted"))).toBe(REDACTED);
		expect(place(redacting.open(sealed(redacting, nativeRecord({ api_key: secret })), "encrypted"))).toBe(REDACTED);
	}
});

test("redacted and empty secrets stay so, unencrypted", () => {
	const record = nativeRecord({ api_key: REDACTED, aws_session_token: "", extra_headers: { a: REDACTED, b: "" } });
	record.workspace = undefined;
	record.agentState = undefined;
	record.unnamedMembers = {};
	const { bytes } = encrypting.seal(clone(ConversationInfoSchema, record));
	expect(Buffer.from(bytes)).toEqual(Buffer.from(toBinary(ConversationInfoSchema, record)));
	for (const form of secretsForms) expect(hex(encrypting.open(bytes, form))).toBe(hex(record));
});

test("ciphertexts that changed places, conversations or bytes are an error in plain text, and nothing else", () => {
	const bytes = sealed(encrypting, nativeRecord());
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
		alter((record) => {
			llmOf(record).apiKey = "a plain secret";
		}),
	];
	const redacted = format.toJson(redactedCopy(nativeRecord()));
	for (const stored of altered) {
		expect(() => encrypting.open(stored, "plaintext")).toThrow(DATA_LOSS);
		expect(JSON.stringify(format.toJson(encrypting.open(stored, "encrypted")))).not.toContain("a plain secret");
		expect(format.toJson(encrypting.open(stored, "redacted"))).toMatchObject({ agent: redacted.agent ?? null });
	}
});

test("no changed byte of a stored record gives a wrong secret", () => {
	const bytes = sealed(encrypting, nativeRecord());
	const places: number[] = [];
	walk(encrypting.open(bytes, "encrypted"), (ciphertext) => {
		const start = Buffer.from(bytes).indexOf(ciphertext);
		for (let offset = 0; offset < ciphertext.length; offset++) places.push(start + offset);
		return ciphertext;
	});
	expect(places.length).toBeGreaterThan(5 * 60);
	for (const place of places) {
		const changed = Buffer.from(bytes);
		// A letter with another lowest bit: still ASCII, so the record itself can be read.
		changed[place] = (changed[place] ?? 0) ^ 1;
		expect(() => encrypting.open(changed, "plaintext")).toThrow(DATA_LOSS);
	}
});

test("without the key, plain text is refused with the id of the key, and the other forms are read", () => {
	const record = create(ConversationInfoSchema, { id: CONVERSATION_ID, agentState: { token: "t" } });
	const bytes = sealed(encrypting, record);
	const id = /enc:v1:([\w-]+):/.exec(Buffer.from(bytes).toString("latin1"))?.[1];
	const missing = new ServiceError(
		"data_loss",
		`The secret /agent_state/token of conversation ${CONVERSATION_ID} cannot be decrypted: no encryption key with the id ${id} is configured`,
	);
	for (const vault of [redacting, new RecordVault(format.plan, [key(2)])]) {
		expect(() => vault.open(bytes, "plaintext")).toThrow(missing);
		expect(hex(vault.open(bytes, "redacted"))).toBe(hex(redactedCopy(record)));
		expect(hex(vault.open(bytes, "encrypted"))).toBe(Buffer.from(bytes).toString("hex"));
	}
	expect(hex(new RecordVault(format.plan, [key(2), key(1)]).open(bytes, "plaintext"))).toBe(hex(record));
});

test("what holds no ciphertext is given as it is stored, in every form", () => {
	const secret = create(ConversationInfoSchema, { id: CONVERSATION_ID, agentState: { token: "t" } });
	const harmless = create(ConversationInfoSchema, { id: CONVERSATION_ID, agentState: { token: "", other: "t" } });
	for (const { bytes, seal } of [
		redacting.seal(clone(ConversationInfoSchema, secret)),
		encrypting.seal(clone(ConversationInfoSchema, harmless)),
	])
		for (const vault of [redacting, encrypting])
			for (const form of secretsForms) expect(vault.openEncoded(bytes, { redactionVersion: seal }, form)).toBe(bytes);
});

test("the encoded form of a record is that of the opened one", () => {
	const { bytes, seal } = encrypting.seal(
		create(ConversationInfoSchema, { id: CONVERSATION_ID, agentState: { token: "t" } }),
	);
	for (const form of secretsForms)
		expect(Buffer.from(encrypting.openEncoded(bytes, { redactionVersion: seal }, form)).toString("hex")).toBe(
			hex(encrypting.open(bytes, form)),
		);
	expect(Buffer.from(encrypting.openEncoded(bytes, { redactionVersion: seal }, "redacted")).includes("enc:")).toBe(
		false,
	);
});

test("a record whose seal is not of this release's rules is redacted when it is read", () => {
	const bytes = toBinary(ConversationInfoSchema, create(ConversationInfoSchema, { agentState: { token: CANARY } }));
	const { seal } = redacting.seal(create(ConversationInfoSchema));
	for (const unknown of [0, seal + 1])
		expect(Buffer.from(redacting.openEncoded(bytes, { redactionVersion: unknown }, "redacted")).includes(CANARY)).toBe(
			false,
		);
});

test("a record that comes again has the same digest, and one with another secret has another", () => {
	const again = [encrypting.seal(nativeRecord()), encrypting.seal(nativeRecord())];
	const other = encrypting.seal(nativeRecord({ api_key: "other", aws_access_key_id: "two" }));
	expect(again[0]?.digest).toEqual(again[1]?.digest);
	expect(again[0]?.bytes).not.toEqual(again[1]?.bytes);
	expect(again[0]?.digest).toHaveLength(32);
	expect(other.digest).not.toEqual(again[0]?.digest);
});

test("without keys, records that differ in secrets alone are the same update", () => {
	const seals = ["a", "b"].map((secret) => redacting.seal(nativeRecord({ api_key: secret })));
	expect(seals[0]).toEqual(seals[1]);
	expect(seals[0]?.digest).toBeUndefined();
	expect(redacting.seal(nativeRecord({ api_key: "a", model: "n" })).bytes).not.toEqual(seals[0]?.bytes);
});

test("a digest depends on the first key", () => {
	const digests = [[key(1)], [key(2)], [key(2), key(1)]].map((keys) =>
		Buffer.from(new RecordVault(format.plan, keys).seal(nativeRecord()).digest ?? []).toString("hex"),
	);
	expect(new Set(digests).size).toBe(2);
	expect(digests[1]).toBe(digests[2]);
});
