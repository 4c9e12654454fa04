import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { type ErrorKind, FAILURES, ServiceError } from "../src/errors.ts";
import { toConnectError } from "../src/rpc/rpc-method.ts";
import { sendError } from "../src/transports/http/exchange.ts";
import { ROOT } from "./support/start-command.ts";

/** Returns the cells of the first table under a heading of a document, without the header row. */
function tableOf(file: string, heading: string): string[][] {
	const text = readFileSync(join(ROOT, "docs", file), "utf8");
	const section = text.split(/^## /m).find((part) => part.startsWith(`${heading}\n`)) ?? "";
	const rows = section.split("\n").filter((line) => line.startsWith("|"));
	return rows.slice(2).map((row) =>
		row
			.split("|")
			.slice(1, -1)
			.map((cell) => cell.trim()),
	);
}

/** Returns the HTTP status and the Retry-After field of the response to a kind of error. */
function answerOf(kind: ErrorKind): { status: number; retryAfter: string | undefined } {
	const headers = new Map<string, string>();
	let status = 0;
	sendError(
		{
			setHeader: (name, value) => headers.set(name, value),
			writeHead: (given) => {
				status = given;
			},
			end: () => undefined,
		},
		new ServiceError(kind, ""),
	);
	return { status, retryAfter: headers.get("Retry-After") };
}

/** Returns the RPC code of a kind of error in the spelling of gRPC, such as NOT_FOUND. */
function codeOf(kind: ErrorKind): string {
	const { code } = toConnectError(new ServiceError(kind, ""));
	return String(Code[code])
		.replaceAll(/(?<=[a-z])(?=[A-Z])/g, "_")
		.toUpperCase();
}

const errorKinds = Object.keys(FAILURES).filter((kind): kind is ErrorKind => Object.hasOwn(FAILURES, kind));

test("docs/api.md lists every kind of refusal with its status, RPC code and Retry-After", () => {
	const rows = tableOf("api.md", "Refusals");
	expect(rows.map(([kind, status, code]) => [kind, status, code])).toEqual(
		errorKinds.map((kind) => [`\`${kind}\``, String(answerOf(kind).status), codeOf(kind)]),
	);
	const documented = rows.flatMap(([kind, , , when]) => {
		const [, seconds] = /`Retry-After: (\d+)`/.exec(when ?? "") ?? [];
		return seconds === undefined ? [] : [[kind, seconds]];
	});
	const actual = errorKinds.flatMap((kind) => {
		const { retryAfter } = answerOf(kind);
		return retryAfter === undefined ? [] : [[`\`${kind}\``, retryAfter]];
	});
	expect(documented).toEqual(actual);
	expect(Object.values(FAILURES).filter((answer) => "retryAfter" in answer)).toHaveLength(actual.length);
});

test("docs/bad-night.md has a section for each alert, in the order of the rules", () => {
	const rules: { groups: { rules: { alert: string }[] }[] } = parse(
		readFileSync(join(ROOT, "deploy/prometheus-alerts.yaml"), "utf8"),
	);
	const sections = readFileSync(join(ROOT, "docs/bad-night.md"), "utf8").matchAll(/^## (Conversations\w+)$/gm);
	expect(Array.from(sections, ([, name]) => name)).toEqual(
		rules.groups.flatMap(({ rules }) => rules.map(({ alert }) => alert)),
	);
});

test.each(["first-day.md", "bad-night.md", "upgrade.md"])("docs/%s is short enough to be read to the end", (page) => {
	const words = readFileSync(join(ROOT, "docs", page), "utf8").split(/\s+/);
	expect(words.length).toBeLessThanOrEqual(1500);
});
