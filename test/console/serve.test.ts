import { gzipSync } from "node:zlib";
import { expect, test } from "vitest";
import packageJson from "../../package.json" with { type: "json" };
import { KEY, startTestService } from "../support/service.ts";

const POLICY =
	"default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

test("the files are served without a key, with a strict policy; those of the first page are at most 125 KB compressed", async () => {
	await using service = await startTestService();
	const page = await fetch(`${service.http}/`);
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
	const files = [...html.matchAll(/(?:src|href)="(\.\/assets\/[^"]+)"/g)].map(([, path]) => path ?? "");
	const scripts = files.filter((path) => path.endsWith(".js"));
	expect(scripts.length).toBeGreaterThan(1);
	const asset = await fetch(new URL(scripts[0] ?? "", page.url));
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
	let size = 0;
	for (const path of files) {
		const response = await fetch(new URL(path, page.url));
		expect(response.status).toBe(200);
		size += gzipSync(await response.bytes()).length;
	}
	expect(size).toBeLessThan(125_000);
});

test("below a base path the files and GetServiceInfo answer, which tells facts about the service and the caller", async () => {
	await using service = await startTestService({ BASE_PATH: "/bridge", RETENTION_DAYS: "0.5" });
	const page = await fetch(`${service.http}/bridge/`);
	const script = /src="(\.\/assets\/[^"]+\.js)"/.exec(await page.text())?.[1] ?? "";
	expect((await fetch(new URL(script, page.url))).status).toBe(200);
	const response = await fetch(`${service.http}/bridge`, { redirect: "manual" });
	expect([response.status, response.headers.get("location")]).toEqual([308, "/bridge/"]);
	expect((await fetch(`${service.http}/`)).status).toBe(404);
	for (const path of ["", "/bridge"]) {
		const url = `${service.http}${path}/conversations.v1.ServiceInfoService/GetServiceInfo`;
		const call = (headers: Record<string, string>) =>
			fetch(url, { method: "POST", headers: { "Content-Type": "application/json", ...headers }, body: "{}" });
		const answer = await call({ "X-Access-Token": KEY });
		expect(await answer.json()).toEqual({
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
	}
});

test("the files are not served with CONSOLE=off", async () => {
	await using service = await startTestService({ CONSOLE: "off" });
	expect((await fetch(`${service.http}/`)).status).toBe(404);
});
