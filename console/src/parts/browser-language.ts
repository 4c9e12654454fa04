/**
 * Gives the browser a language for libraries that make a number format of it when they are imported. Under LANG=C it is
 * no BCP 47 tag: en-US@posix.
 */
try {
	Intl.getCanonicalLocales(navigator.language);
} catch {
	Object.defineProperty(navigator, "language", { value: "en" });
}
