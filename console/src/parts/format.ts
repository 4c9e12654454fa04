import { writer } from "./days.ts";

export { isSameDay } from "./days.ts";

/** How numbers and times are written. */

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const whole = new Intl.NumberFormat("en");
const day = writer({ weekday: "short", day: "numeric", month: "short" });

/** Writes a large number shortly, such as 412K. */
export function short(value: bigint | number): string {
	return compact.format(value);
}

/** Writes a number in full, such as 411,982. */
export function full(value: bigint | number): string {
	return whole.format(value);
}

/** Writes the number of a score with as many digits as tell it apart from others: 0.0123, 0.875, 1,204.5. */
export function scoreNumber(value: number): string {
	const digits = Math.abs(value) < 1 ? { maximumSignificantDigits: 3 } : { maximumFractionDigits: 2 };
	return value.toLocaleString("en", digits);
}

/** Writes a cost with as many digits as it needs: $1.84, $0.0031, -$0.71. */
export function cost(value: number): string {
	const digits = Math.abs(value) < 0.1 ? 4 : 2;
	const amount = Math.abs(value).toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: digits });
	return `${value < 0 ? "-" : ""}$${amount}`;
}

/** Writes a part of the whole, such as 49 %. */
export function share(part: number): string {
	return part > 0 && part < 0.005 ? "< 1 %" : `${Math.round(100 * part)} %`;
}

/** Writes a duration in milliseconds, such as 48 s or 3 min 20 s. */
export function duration(milliseconds: number): string {
	const exactly = Math.max(0, milliseconds) / 1000;
	if (exactly < 9.95) return `${exactly.toFixed(1)} s`;
	const seconds = Math.round(exactly);
	if (seconds < 60) return `${seconds} s`;
	const minutes = Math.floor(seconds / 60);
	if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
	const hours = Math.floor(minutes / 60);
	if (hours < 48) return `${hours} h ${minutes % 60} min`;
	return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Writes how long ago a time was, such as 4 s ago. */
export function ago(time: Date, now: number): string {
	const seconds = Math.round((now - time.getTime()) / 1000);
	if (seconds < 1) return "now";
	if (seconds < 60) return `${seconds} s ago`;
	if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
	if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
	return `${Math.floor(seconds / 86_400)} d ago`;
}

/** Writes the time of day in the zone of the address. */
export const timeOfDay: (time: Date) => string = writer({ hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** Writes the day and the time of day in the zone of the address, such as Mon 23 Nov, 15:25:39. */
export function dayAndTime(time: Date): string {
	return `${day(time)}, ${timeOfDay(time)}`;
}

/** Writes a time exactly, with its zone. */
export const exactTime: (time: Date) => string = writer({ dateStyle: "medium", timeStyle: "long" });
