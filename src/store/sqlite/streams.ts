import { type TimeRange, within } from "./conditions.ts";
import { columnsOf, type Statements } from "./statements.ts";
import { integer } from "./values.ts";

/** Sequences of conversations, newest first. */
export interface Stream {
	/** The greatest sequence below `below`, which never grows from call to call. */
	next(below: number): number | undefined;
}

/** A bucket of time is 2^36 microseconds, as the schema has it. */
const bucketShift = 36n;
/** Buckets of time above which a range is not merged. */
const maxBuckets = 4_096;
const smallestChunk = 4;
const largestChunk = 256;

/**
 * The conversations of a period below a sequence, merged from its buckets of time; undefined when they are too many.
 * One statement leaps from bucket to bucket, so neither gaps nor a stray date cost anything.
 */
export function rangeStream(statements: Statements, range: TimeRange, below: number): Stream | undefined {
	const { column, from, to } = range;
	const bucket = `${column}_bucket`;
	const filled = `${column}_at IS NOT NULL`;
	const { text, parameters } = within(range);
	const heads = statements
		.numbers(`
			WITH RECURSIVE buckets (n) AS (
				SELECT min(${bucket}) FROM conversations WHERE ${filled} AND ${bucket} >= ?
				UNION ALL
				SELECT (SELECT min(${bucket}) FROM conversations WHERE ${filled} AND ${bucket} > n)
				FROM buckets WHERE n < ?
			)
			SELECT n, (
				SELECT sequence FROM conversations WHERE ${bucket} = n AND ${text} AND sequence < ?
				ORDER BY sequence DESC LIMIT 1
			) FROM buckets WHERE n <= ? LIMIT ?
		`)
		.all(from >> bucketShift, (to - 1n) >> bucketShift, ...parameters, below, (to - 1n) >> bucketShift, maxBuckets + 1);
	if (heads.length > maxBuckets) return undefined;
	const following = `
		SELECT sequence FROM conversations WHERE ${bucket} = ? AND ${text} AND sequence < ?
		ORDER BY sequence DESC LIMIT ?
	`;
	const streams = heads.flatMap((row) => {
		const [n, head] = columnsOf(row);
		if (head === null) return [];
		const read = (position: number, limit: number) =>
			statements
				.numbers(following)
				.all(integer(n), ...parameters, position, limit)
				.map(sequenceOf);
		return [new ChunkedStream(read, integer(head))];
	});
	return new MergedStream(streams);
}

function sequenceOf(row: unknown): number {
	return integer(columnsOf(row)[0]);
}

/** Reads on in chunks that grow while they are used up. */
class ChunkedStream implements Stream {
	readonly #read: (below: number, limit: number) => number[];
	#chunk: number[];
	#position = 0;
	#size = smallestChunk;
	#ended = false;

	/** `head` is the first sequence, `read` gives the ones below a sequence. */
	constructor(read: (below: number, limit: number) => number[], head: number) {
		this.#read = read;
		this.#chunk = [head];
	}

	next(below: number): number | undefined {
		for (; this.#position < this.#chunk.length; this.#position += 1) {
			const sequence = this.#chunk[this.#position];
			if (sequence !== undefined && sequence < below) return sequence;
		}
		if (this.#ended) return undefined;
		this.#chunk = this.#read(below, this.#size);
		this.#position = 0;
		this.#ended = this.#chunk.length < this.#size;
		this.#size = Math.min(this.#size * 2, largestChunk);
		return this.#chunk[0];
	}
}

/** Sequences that are known already, in any order. */
export class KnownStream implements Stream {
	readonly #sequences: readonly number[];
	#position = 0;

	constructor(sequences: readonly number[]) {
		this.#sequences = sequences.toSorted((a, b) => b - a);
	}

	next(below: number): number | undefined {
		for (; this.#position < this.#sequences.length; this.#position += 1) {
			const sequence = this.#sequences[this.#position];
			if (sequence !== undefined && sequence < below) return sequence;
		}
		return undefined;
	}
}

/** What any of several streams holds. */
class MergedStream implements Stream {
	/** Each stream with its next sequence, in ascending order of that. */
	readonly #heads: { readonly stream: Stream; sequence: number }[] = [];

	constructor(streams: readonly Stream[]) {
		for (const stream of streams) {
			const sequence = stream.next(Number.MAX_SAFE_INTEGER);
			if (sequence !== undefined) this.#heads.push({ stream, sequence });
		}
		this.#heads.sort((a, b) => a.sequence - b.sequence);
	}

	next(below: number): number | undefined {
		for (;;) {
			const head = this.#heads.at(-1);
			if (head === undefined || head.sequence < below) return head?.sequence;
			this.#heads.pop();
			const sequence = head.stream.next(below);
			if (sequence === undefined) continue;
			head.sequence = sequence;
			const place = this.#heads.findLastIndex((other) => other.sequence < sequence) + 1;
			this.#heads.splice(place, 0, head);
		}
	}
}
