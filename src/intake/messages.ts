import type { KeyObject } from "node:crypto";
import type { ErrorKind, Violation } from "../errors.ts";
import type { JsonAliases } from "../record/plan.ts";
import type { NewUpdate } from "../store/store.ts";

/** What the intake's worker is started with. */
export interface IntakeData {
	readonly aliases: JsonAliases;
	readonly encryptionKeys: readonly KeyObject[];
}

/** What arrived. Bytes: the body or the encoded request. `close` ends the worker. */
export interface IntakeRequest {
	readonly kind: "json" | "request" | "close";
}

/** Outcome of a request. Bytes of an update: its digest (empty when there is none), record and summary. */
export type IntakeAnswer =
	| { readonly update: Pick<NewUpdate, "conversationId" | "columns" | "receivedAt" | "seal"> }
	| {
			readonly refused: {
				readonly kind: ErrorKind;
				readonly message: string;
				readonly violations: readonly Violation[];
			};
	  };
