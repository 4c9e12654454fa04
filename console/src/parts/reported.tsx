interface ReportedProps<Value> {
	/** Undefined: the agent server did not report it. */
	readonly value: Value | undefined;
	readonly format: (value: Value) => string;
}

/** A number that may not be reported. A dash with a title then tells it apart from 0. */
export function Reported<Value>({ value, format }: ReportedProps<Value>) {
	return value === undefined ? <span title={NOT_REPORTED}>–</span> : format(value);
}

/** What a text says in place of a number that was not reported. */
export const NOT_REPORTED = "not reported";
