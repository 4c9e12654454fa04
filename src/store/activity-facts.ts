/** A text from an event, and the time by which it is ordered, in microseconds since the Unix epoch. */
export interface TimedText {
	readonly text: string;
	readonly at: bigint;
}

/** An error that an event reports. Its texts contain no secret. */
export interface ReportedError {
	readonly code: string;
	/** Empty when the event does not tell it. */
	readonly kind: string;
	/** Undefined when the event does not tell it. */
	readonly retryable: boolean | undefined;
	/** Beginning of the text. */
	readonly text: string;
}

/** The latest error of a conversation. */
export interface LastError extends ReportedError {
	readonly at: bigint;
	/** Sequence of the event. */
	readonly sequence: bigint;
}
