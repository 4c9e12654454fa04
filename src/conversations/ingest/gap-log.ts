import { LRUCache } from "lru-cache";
import type { OpenGaps } from "../../store/gaps.ts";
import type { Logger } from "../../telemetry/log.ts";

/** Maximum number of conversations that are remembered. One that is forgotten may be logged again. */
const MAX_LOGGED = 10_000;

/** Logs that something is missing of a conversation, once for each. */
export class GapLog {
	readonly #logger: Pick<Logger, "conversationGaps">;
	readonly #logged = new LRUCache<string, true>({ max: MAX_LOGGED });

	constructor(logger: Pick<Logger, "conversationGaps">) {
		this.#logger = logger;
	}

	/** @param gaps those of a result of an append; undefined when there is nothing to log */
	add(conversationId: string, gaps: OpenGaps | undefined): void {
		if (gaps === undefined || this.#logged.has(conversationId)) return;
		this.#logged.set(conversationId, true);
		this.#logger.conversationGaps(conversationId, gaps);
	}
}
