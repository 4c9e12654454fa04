import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { signal } from "@preact/signals";
import { ago, dayAndTime, exactTime, isSameDay, timeOfDay } from "./format.ts";

/** The present time in milliseconds, to the second. */
export const now = signal(Date.now());
setInterval(() => {
	now.value = Date.now();
}, 1000);

export function dateOf({ seconds, nanos }: Timestamp): Date {
	return new Date(Number(seconds) * 1000 + nanos / 1e6);
}

/** A time, relative to now; the exact time is shown on hover. */
export function Ago({ time }: { readonly time: Timestamp | undefined }) {
	if (time === undefined) return <span class="muted">–</span>;
	const date = dateOf(time);
	return (
		<time dateTime={date.toISOString()} title={exactTime(date)}>
			{ago(date, now.value)}
		</time>
	);
}

/** A time of day, with its day if that is not today; the exact time is shown on hover. */
export function Clock({ time }: { readonly time: Timestamp | undefined }) {
	if (time === undefined) return null;
	const date = dateOf(time);
	return (
		<time dateTime={date.toISOString()} title={exactTime(date)}>
			{isSameDay(date, new Date(now.value)) ? timeOfDay(date) : dayAndTime(date)}
		</time>
	);
}
