import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";

const ROOT = join(import.meta.dirname, "../..");

const lockfile = z.object({
	packages: z.record(
		z.string(),
		z.object({
			version: z.string().optional(),
			license: z.string().optional(),
			dependencies: z.record(z.string(), z.string()).default({}),
			optionalDependencies: z.record(z.string(), z.string()).default({}),
			peerDependencies: z.record(z.string(), z.string()).default({}),
		}),
	),
});

/** A package of npm that users get with the service. */
export interface ShippedPackage {
	readonly name: string;
	readonly version: string;
	/** SPDX expression. */
	readonly license: string;
}

/**
 * Returns the packages that users get: those that the program needs, and those that the build puts into the pages of the
 * console. They are those of package-lock.json, ordered by name and version.
 */
export function shippedPackages(): readonly ShippedPackage[] {
	const { packages } = lockfile.parse(JSON.parse(readFileSync(join(ROOT, "package-lock.json"), "utf8")));
	const shipped = new Map<string, ShippedPackage>();
	const add = (name: string, from: string, isOptional: boolean): void => {
		const path = pathOf(name, from);
		if (path === undefined && isOptional) return;
		const found = path === undefined ? undefined : packages[path];
		if (path === undefined || found?.version === undefined) throw new Error(`package-lock.json lacks ${name}`);
		if (shipped.has(path)) return;
		shipped.set(path, { name, version: found.version, license: found.license ?? "unknown" });
		for (const other of Object.keys(found.dependencies)) add(other, path, false);
		for (const other of Object.keys({ ...found.optionalDependencies, ...found.peerDependencies }))
			add(other, path, true);
	};
	/** Returns the key of a package, as Node.js finds it from a folder of packages. */
	const pathOf = (name: string, from: string): string | undefined => {
		for (let folder = from; ; folder = folder.slice(0, Math.max(0, folder.lastIndexOf("/node_modules/")))) {
			const path = folder === "" ? `node_modules/${name}` : `${folder}/node_modules/${name}`;
			if (packages[path] !== undefined) return path;
			if (folder === "") return undefined;
		}
	};
	const own = packages[""];
	for (const name of [...Object.keys(own?.dependencies ?? {}), ...consolePackages()]) add(name, "", false);
	for (const name of Object.keys(own?.optionalDependencies ?? {})) add(name, "", true);
	return [...new Map([...shipped.values()].map((one) => [`${one.name}@${one.version}`, one])).values()].sort((a, b) =>
		`${a.name}@${a.version}` < `${b.name}@${b.version}` ? -1 : 1,
	);
}

/** Returns the names of the packages that the sources of the console import. */
function consolePackages(): Set<string> {
	const names = new Set<string>();
	for (const path of globSync("console/src/**/*.{ts,tsx,css}", { cwd: ROOT }))
		for (const [, imported = ""] of readFileSync(join(ROOT, path), "utf8").matchAll(
			/\b(?:from|import)\s*\(?\s*"([^".\s][^"\s]*)"/g,
		))
			names.add(imported.split("/", imported.startsWith("@") ? 2 : 1).join("/"));
	return names;
}
