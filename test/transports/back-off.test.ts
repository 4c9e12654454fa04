import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { BackOff } from "../../src/transports/back-off.ts";

beforeEach(() => {
	vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "setImmediate"] });
});
afterEach(() => {
	vi.useRealTimers();
});

/** Makes a connection for each letter of `names`, and records the calls of their methods. */
function connections(names: string) {
	const calls: string[] = [];
	const made = [...names].map((name) => ({
		pause: () => void calls.push(`pause ${name}`),
		resume: () => void calls.push(`resume ${name}`),
	}));
	return { calls, made };
}

test("connections are resumed one by one while there is room, in the order in which they were paused", () => {
	let room = 0;
	const backOff = new BackOff(() => room > 0);
	const { calls, made } = connections("abcd");
	// A connection that is resumed sends a request, which takes up room.
	const taking = made.map((connection) => ({
		...connection,
		resume: () => {
			connection.resume();
			room -= 1;
		},
	}));
	for (const connection of [...taking, ...taking]) backOff.pause(connection);
	const paused = ["pause a", "pause b", "pause c", "pause d"];
	expect(calls).toEqual(paused);
	backOff.resumeIfRoom();
	vi.advanceTimersByTime(1);
	expect(calls).toEqual(paused);
	room = 2;
	backOff.resumeIfRoom();
	backOff.resumeIfRoom();
	vi.advanceTimersByTime(1);
	expect(calls).toEqual([...paused, "resume a", "resume b"]);
	room = 1;
	backOff.resumeIfRoom();
	// Other requests take up the room before the next connection is resumed.
	room = 0;
	vi.advanceTimersByTime(1);
	expect(calls).toEqual([...paused, "resume a", "resume b"]);
});

test("a connection is resumed after five seconds without room, and may be paused again", () => {
	const backOff = new BackOff(() => false);
	const { calls, made } = connections("a");
	for (const connection of [...made, ...made]) backOff.pause(connection);
	vi.advanceTimersByTime(4_999);
	expect(calls).toEqual(["pause a"]);
	vi.advanceTimersByTime(1);
	expect(calls).toEqual(["pause a", "resume a"]);
	for (const connection of made) backOff.pause(connection);
	vi.advanceTimersByTime(60_000);
	expect(calls).toEqual(["pause a", "resume a", "pause a", "resume a"]);
});
