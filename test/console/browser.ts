import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import chromium from "@sparticuz/chromium";
import { type Browser, type BrowserContext, chromium as playwright } from "playwright-core";

/** Size of a page in pixels. */
export const DESKTOP = { width: 1280, height: 800 };
export const PHONE = { width: 390, height: 844 };

/** Arguments of the package that make Chromium less strict than the one of a person, or end it with its first window. */
const UNWANTED = new Set([
	"--single-process",
	"--disable-web-security",
	"--disable-site-isolation-trials",
	"--allow-running-insecure-content",
]);

/** A Chromium of the npm package, which unpacks itself into a folder of its own. */
export class TestBrowser implements AsyncDisposable {
	readonly #browser: Browser;
	readonly #folder: string;
	readonly #language: { readonly locale?: string };

	private constructor(browser: Browser, folder: string, language: { readonly locale?: string }) {
		this.#browser = browser;
		this.#folder = folder;
		this.#language = language;
	}

	/** @param env variables of the browser's environment. Windows are in English unless LANG is one of them */
	static async start(env: Readonly<Record<string, string>> = {}): Promise<TestBrowser> {
		const folder = await mkdtemp(join(tmpdir(), "console-browser-"));
		const { TMPDIR } = process.env;
		// The package unpacks into TMPDIR, and does not unpack again what it finds there.
		process.env.TMPDIR = folder;
		try {
			const executablePath = await chromium.executablePath();
			const args = chromium.args.filter((argument) => !UNWANTED.has(argument));
			const browser = await playwright.launch({
				executablePath,
				args,
				headless: true,
				env: { ...process.env, ...env },
			});
			return new TestBrowser(browser, folder, env.LANG === undefined ? { locale: "en-GB" } : {});
		} catch (error) {
			await rm(folder, { recursive: true, force: true });
			throw error;
		} finally {
			if (TMPDIR === undefined) delete process.env.TMPDIR;
			else process.env.TMPDIR = TMPDIR;
		}
	}

	/** Opens a window with storage of its own. */
	async window(options: Parameters<Browser["newContext"]>[0] = {}): Promise<BrowserContext> {
		return await this.#browser.newContext({
			viewport: DESKTOP,
			timezoneId: "Europe/Berlin",
			...this.#language,
			colorScheme: "light",
			...options,
		});
	}

	async [Symbol.asyncDispose](): Promise<void> {
		await this.#browser.close();
		await rm(this.#folder, { recursive: true, force: true });
	}
}
