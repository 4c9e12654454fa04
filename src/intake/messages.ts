import type { KeyObject } from "node:crypto";
import type { ErrorKind, Violation } from "../errors.ts";

/** What the intake's worker is started with. */
export interface IntakeData {
	readonly encryptionKeys: readonly KeyObject[];
}

/** What arrived. Bytes: the body or the encoded request. `close` ends the worker. */
export interface IntakeRequest {
	readonly kind: "json" | "request" | "close";
}

/** Outcome of a request: why the record was refused, or nothing. Bytes of the latter: those of the encoded update. */
export type IntakeAnswer = Refusal | undefined;

export interface Refusal {
	readonly kind: ErrorKind;
	readonly message: string;
	readonly violations: readonly Violation[];
}
