import { expect, test } from "vitest";
import { Certificates } from "../support/certificates.ts";
import { KEY, startTestService } from "../support/service.ts";
import { TestBrowser } from "./browser.ts";
import { visit } from "./visit.ts";

test("a browser with a known client certificate is asked for no key, and its calls carry none", async () => {
	using certificates = new Certificates();
	await using browser = await TestBrowser.start();
	await using service = await startTestService({
		ACCESS_KEYS: `other:${KEY}:ingest`,
		TLS_CERT_FILE: certificates.path("server.crt"),
		TLS_KEY_FILE: certificates.path("server.key"),
		TLS_CLIENT_CA_FILE: certificates.path("ca.crt"),
		CLIENT_CERTIFICATES: "agent-1:read",
	});
	const origin = service.http.replace("http:", "https:");
	const { page, faults } = await visit(browser, `${origin}/`, {
		ignoreHTTPSErrors: true,
		clientCertificates: [{ origin, certPath: certificates.path("agent.crt"), keyPath: certificates.path("agent.key") }],
	});
	await page.getByText("No conversation yet").waitFor();
	await page.getByText("live", { exact: true }).waitFor();
	expect(await page.getByRole("button", { name: "Sign out" }).count()).toBe(0);
	expect(await page.evaluate("sessionStorage.length")).toBe(0);
	await page.getByRole("link", { name: "About", exact: true }).first().click();
	await page.getByText("agent-1: read").waitFor();
	const downloading = page.waitForRequest((request) => request.url().includes("/api/v1/usage"));
	await page.getByRole("link", { name: "Usage" }).click();
	await page.getByText("No usage in this range").waitFor();
	await page.keyboard.press("c");
	const request = await downloading;
	expect(request.headers()["x-access-token"]).toBe(undefined);
	expect((await request.response())?.status()).toBe(200);
	expect(faults).toEqual([]);
	await page.context().close();
});
