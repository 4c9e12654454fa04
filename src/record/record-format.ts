import { isMessage, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import type { Value } from "@bufbuild/protobuf/wkt";
import type { z } from "zod";
import { type ConversationInfo, ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { ServiceError, type Violation } from "../errors.ts";
import { deriveDecoder, type KeepUnnamed, type MessageFields } from "./json/decode.ts";
import { deriveEncoder } from "./json/encode.ts";
import { toValue } from "./json/free-form.ts";
import { placeUnnamed } from "./json/unnamed.ts";
import { deriveNormalizer } from "./normalize.ts";
import { type JsonAliases, type MessagePlan, planMessage } from "./plan/plan.ts";
import { limitViolations } from "./validation/limits.ts";
import { deriveSchema } from "./validation/schema.ts";
import { violationsOf } from "./validation/violations.ts";

/** The record in both of its forms, and the one schema that judges it. Built once at start. */
export class RecordFormat {
	readonly plan: MessagePlan;
	readonly #schema: z.ZodType;
	readonly #decode: (json: JsonValue, keep: KeepUnnamed) => MessageFields;
	readonly #encode: (message: ConversationInfo) => JsonValue;
	readonly #normalize: (message: ConversationInfo) => boolean;

	/** @param aliases names that senders use for the specification's, theirs to ours; never written */
	constructor(aliases: JsonAliases = new Map()) {
		this.plan = planMessage(ConversationInfoSchema, aliases);
		this.#schema = deriveSchema(this.plan);
		this.#decode = deriveDecoder(this.plan);
		this.#encode = deriveEncoder(this.plan);
		this.#normalize = deriveNormalizer(this.plan);
	}

	/**
	 * Reads a record from its JSON form: checks it, fills in the defaults and keeps the members that no field names.
	 *
	 * @param json what `JSON.parse` made of the body
	 * @param surrogates whether the text of the body has an escape that can stand for a lone surrogate
	 * @throws ServiceError `invalid_record` with every violation
	 */
	fromJson(json: JsonValue, surrogates = true): ConversationInfo {
		const limits = limitViolations(json, this.plan, surrogates);
		// Too deep for everything that follows: the one violation stands for the whole record.
		if (limits.some((violation) => violation.path.length === 0)) throw invalid(limits);
		const result = this.#schema.safeParse(json);
		if (!result.success) throw invalid([...violationsOf(result.error.issues, json, this.plan), ...limits]);
		if (limits.length > 0) throw invalid(limits);
		const unnamed: Record<string, Value> = {};
		const message = this.#decode(json, (pointer, member) => {
			unnamed[pointer] = toValue(member);
		});
		message.unnamedMembers = unnamed;
		if (!isMessage(message, ConversationInfoSchema)) throw new TypeError("the decoder made no ConversationInfo");
		return message;
	}

	/**
	 * Checks a record that arrived as a message by the rules of its JSON form, and fills in the defaults. An unset
	 * nullable field stays unset, which is JSON null.
	 *
	 * @param message the caller's no longer once it is accepted: it may be changed, and be the one that is returned
	 * @throws ServiceError `invalid_record` with every violation
	 */
	fromMessage(message: ConversationInfo): ConversationInfo {
		if (this.#normalize(message)) return message;
		const json = this.#encode(message);
		const misplaced = this.#placeUnnamed(json, message);
		if (misplaced.length === 0) return this.fromJson(json, false);
		throw invalid(misplaced);
	}

	/** Writes a record in its JSON form, with the members that no field names at their places. */
	toJson(message: ConversationInfo): JsonObject {
		const json = this.#encode(message);
		this.#placeUnnamed(json, message);
		if (typeof json !== "object" || json === null || Array.isArray(json)) throw new TypeError("a record is an object");
		return json;
	}

	#placeUnnamed(json: JsonValue, message: ConversationInfo): Violation[] {
		const violations: Violation[] = [];
		for (const [pointer, value] of Object.entries(message.unnamedMembers)) {
			if (!placeUnnamed(json, this.plan, pointer, value))
				violations.push({
					path: ["unnamed_members", pointer],
					type: "value_error",
					message: "Value error, not a JSON Pointer to a member that the schema leaves unnamed",
				});
		}
		return violations;
	}
}

function invalid(violations: readonly Violation[]): ServiceError {
	const [first] = violations;
	const place = first === undefined ? "" : ` (first: ${first.path.join(".") || "the record"}: ${first.message})`;
	const count = violations.length === 1 ? "1 rule is" : `${violations.length} rules are`;
	return new ServiceError("invalid_record", `${count} broken${place}`, { violations });
}
