import { gzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import packageJson from "../../package.json" with { type: "json" };
import { KEY, startTestService } from "../support/service.ts";

const POLICY =
	"default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

describe("the files of the console", () => {
	test.each(["", "/bridge"])("are served without a key below %j, with a strict policy", async (basePath) => {
		await using service = await startTestService({ BASE_PATH: basePath });
		const page = await fetch(`${service.http}${basePath}/`);
		const html = await page.text();
		expect(page.status).toBe(200);
		expect(Object.fromEntries(page.headers)).toMatchObject({
			"content-type": "text/html; charset=utf-8",
			"content-security-policy": POLICY,
			"cache-control": "no-store",
			"x-content-type-options": "nosniff",
			"referrer-policy": "no-referrer",
			"cross-origin-opener-policy": "same-origin",
		});
		const script = /src="(\.\/assets\/[^"]+\.js)"/.exec(html)?.[1] ?? "";
		const asset = await fetch(new URL(script, page.url));
		expect(asset.status).toBe(200);
		expect(Object.fromEntries(asset.headers)).toMatchObject({
			"content-type": "text/javascript; charset=utf-8",
			"content-encoding": "gzip",
			"content-security-policy": POLICY,
			"cache-control": "public, max-age=31536000, immutable",
			vary: "Accept-Encoding",
		});
		const plain = await fetch(asset.url, { headers: { "Accept-Encoding": "identity" } });
		expect(plain.headers.get("content-encoding")).toBe(null);
		expect(await plain.text()).toBe(await asset.text());
	});

	test("of the first page are at most 125 KB compressed", async () => {
		await using service = await startTestService();
		const html = await (await fetch(`${service.http}/`)).text();
		const files = [...html.matchAll(/(?:src|href)="(\.\/assets\/[^"]+)"/g)].map(([, path]) => path ?? "");
		expect(files.filter((path) => path.endsWith(".js")).length).toBeGreaterThan(1);
		const sizes = await Promise.all(
			files.map(async (path) => {
				const response = await fetch(new URL(path, `${service.http}/`));
				expect(response.status).toBe(200);
				return gzipSync(await response.bytes()).length;
			}),
		);
		expect(sizes.reduce((sum, size) => sum + size)).toBeLessThan(125_000);
	});

	test("the base path without a slash leads to the page", async () => {
		await using service = await startTestService({ BASE_PATH: "/bridge" });
		const response = await fetch(`${service.http}/bridge`, { redirect: "manual" });
		expect([response.status, response.headers.get("location")]).toEqual([308, "/bridge/"]);
		expect((await fetch(`${service.http}/`)).status).toBe(404);
	});

	test("are not served with CONSOLE=off", async () => {
		await using service = await startTestService({ CONSOLE: "off" });
		expect((await fetch(`${service.http}/`)).status).toBe(404);
	});
});

test.each(["", "/bridge"])(
	"GetServiceInfo tells facts about the service below %j, and about the caller",
	async (path) => {
		await using service = await startTestService({ BASE_PATH: "/bridge", RETENTION_DAYS: "0.5" });
		const url = `${service.http}${path}/conversations.v1.ServiceInfoService/GetServiceInfo`;
		const call = (headers: Record<string, string>) =>
			fetch(url, { method: "POST", headers: { "Content-Type": "application/json", ...headers }, body: "{}" });
		const response = await call({ "X-Access-Token": KEY });
		expect(await response.json()).toEqual({
			version: packageJson.version,
			engine: "sqlite",
			storeHealthy: true,
			startedAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
			retentionDays: 0.5,
			basePath: "/bridge",
			eventTimeZone: "UTC",
			caller: "test",
			callerScopes: ["ingest", "read", "secrets"],
		});
		expect((await call({})).status).toBe(401);
	},
);
