import { formatPath, ServiceError } from "../../errors.ts";
import type { PostForm } from "../../store/refused-posts.ts";
import { echoable } from "../../userinfo.ts";

/** Why a post was refused. None of its texts has a secret: see `ServiceError`. */
export interface RefusalReason {
	/** Place of the mistake in the request, such as `body.max_iterations`; empty for the request as a whole. */
	readonly place: string;
	/** Kind of the broken rule, such as `missing`, or of the refusal. */
	readonly type: string;
	/** Description for a person. */
	readonly message: string;
}

/** Maximum number of characters of a place or a message. A client controls the lengths of some places. */
const MAX_TEXT = 500;
/** Maximum number of characters of all reasons of a post. */
const MAX_ALL = 16_384;

/** Returns the kind of a refusal. */
export function kindOf(error: unknown): ServiceError["kind"] {
	return error instanceof ServiceError ? error.kind : "internal";
}

/** What the places of mistakes begin with, by the form of the post. */
const ROOTS: Readonly<Record<PostForm, string>> = {
	record_json: "body",
	events_json: "body",
	record_message: "conversation",
	events_message: "events",
};

/** Returns the reasons of a refusal as JSON text, as many as have room. Of an unexpected error it says only its kind. */
export function packReasons(error: unknown, form: PostForm): string {
	const kept: RefusalReason[] = [];
	let length = 0;
	for (const reason of reasonsOf(error, ROOTS[form])) {
		length += reason.place.length + reason.type.length + reason.message.length;
		if (kept.length > 0 && length > MAX_ALL) break;
		kept.push(reason);
	}
	return JSON.stringify(kept);
}

function reasonsOf(error: unknown, root: string): readonly RefusalReason[] {
	if (!(error instanceof ServiceError)) return [{ place: "", type: "internal", message: "internal error" }];
	const { kind, message, violations } = error;
	if (violations.length === 0) return [{ place: "", type: kind, message: shorten(message) }];
	return violations.map(({ path, part = root, type, message: mistake }) => ({
		place: shorten(part + formatPath(path)),
		type,
		message: shorten(mistake),
	}));
}

function shorten(text: string): string {
	const shown = echoable(text);
	return shown.length > MAX_TEXT ? `${shown.slice(0, MAX_TEXT)}…` : shown;
}

/**
 * Reads stored reasons.
 *
 * @throws SyntaxError or TypeError when the text is not the result of {@link packReasons}
 */
export function unpackReasons(stored: string): readonly RefusalReason[] {
	const reasons: unknown = JSON.parse(stored);
	if (!Array.isArray(reasons)) throw new TypeError("the stored reasons are no list");
	return reasons.map((reason: Readonly<Record<keyof RefusalReason, unknown>>) => ({
		place: String(reason.place),
		type: String(reason.type),
		message: String(reason.message),
	}));
}
