import chromium from "@sparticuz/chromium";
import { type Browser, type BrowserContext, chromium as playwright } from "playwright-core";
import { afterTests } from "../support/after-tests.ts";
import { TempFolder } from "../support/temp.ts";

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

// The console draws without WebGL. Without a graphics processor in software a page takes half the processor time.
chromium.setGraphicsMode = false;
const ARGUMENTS = [...chromium.args.filter((argument) => !UNWANTED.has(argument)), "--disable-gpu"];

/** The program of the browser, which the browsers of all files of this process share; it takes two seconds to unpack. */
let unpacked: Promise<string> | undefined;

async function unpack(): Promise<string> {
	const { path } = new TempFolder("disk");
	afterTests('rm -rf "$0"', path);
	const { TMPDIR } = process.env;
	// The package unpacks into TMPDIR, and does not unpack again what it finds there.
	process.env.TMPDIR = path;
	try {
		return await chromium.executablePath();
	} finally {
		if (TMPDIR === undefined) delete process.env.TMPDIR;
		else process.env.TMPDIR = TMPDIR;
	}
}

/** A Chromium of the npm package. */
export class TestBrowser implements AsyncDisposable {
	readonly #browser: Browser;
	readonly #language: { readonly locale?: string };

	private constructor(browser: Browser, language: { readonly locale?: string }) {
		this.#browser = browser;
		this.#language = language;
	}

	/** @param env variables of the browser's environment. Windows are in English unless LANG is one of them */
	static async start(env: Readonly<Record<string, string>> = {}): Promise<TestBrowser> {
		unpacked ??= unpack();
		const browser = await playwright.launch({
			executablePath: await unpacked,
			args: ARGUMENTS,
			headless: true,
			env: { ...process.env, ...env },
		});
		return new TestBrowser(browser, env.LANG === undefined ? { locale: "en-GB" } : {});
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
	}
}
