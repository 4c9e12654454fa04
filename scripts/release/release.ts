/**
 * `npm run release -- <folder>`: writes the files of a release into a folder: the packages of the service and of the
 * TypeScript client, the context of the image, the protos as a module of buf, the OpenAPI document, the SBOM (CycloneDX) and
 * the checksums of all. They are those of the last commit, and the same for each run. `SOURCE_DATE_EPOCH`, in seconds,
 * is the time in the SBOM; default: that of the commit.
 */

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { gzipSync } from "node:zlib";
import { z } from "zod";
import { packageJson } from "../../src/package-json.ts";
import { shippedPackages } from "./shipped.ts";

const ROOT = join(import.meta.dirname, "../..");
const { name, version } = packageJson();

function run(program: string, parameters: readonly string[], cwd = ROOT): Buffer {
	return execFileSync(program, parameters, { cwd, maxBuffer: 2 ** 30, stdio: ["ignore", "pipe", "inherit"] });
}

const [target, ...others] = process.argv.slice(2);
if (target === undefined || others.length > 0) {
	console.error("usage: npm run release -- <folder>");
	process.exit(2);
}
if (run("git", ["status", "--porcelain"]).length > 0) {
	console.error("There are changes that are not committed.");
	process.exit(1);
}
const folder = resolve(target);
mkdirSync(folder, { recursive: true });
if (readdirSync(folder).length > 0) {
	console.error(`${folder} is not empty.`);
	process.exit(1);
}
const { SOURCE_DATE_EPOCH = run("git", ["log", "-1", "--format=%ct"]).toString().trim() } = process.env;

// The scripts would build dist/ again.
run("npm", ["pack", "--ignore-scripts", "--pack-destination", folder]);
run("npm", ["pack", "--pack-destination", folder], join(ROOT, "clients/typescript"));
archive("image-context", [".", ":!test", ":!bench", ":!docs/pictures"]);
archive("protos", ["buf.yaml", "LICENSE", "proto", "third_party"]);
copyFileSync(join(ROOT, "dist/openapi.json"), join(folder, `${name}-${version}-openapi.json`));
writeFileSync(join(folder, `${name}-${version}-sbom.cdx.json`), sbom());
const files = readdirSync(folder).sort();
const sums = files.map((file) => `${digestOf(readFileSync(join(folder, file)))}  ${file}\n`);
writeFileSync(join(folder, "SHA256SUMS"), sums.join(""));
process.stdout.write(sums.join(""));

/** Writes an archive of files of the last commit. */
function archive(subject: string, paths: readonly string[]): void {
	const files = run("git", ["archive", "--format=tar", "HEAD", ...paths]);
	writeFileSync(join(folder, `${name}-${version}-${subject}.tar.gz`), gzipSync(files, { level: 9 }));
}

/** Returns the SBOM of what users get. Its time and serial number follow from the commit. */
function sbom(): string {
	const document = z.looseObject({
		serialNumber: z.string(),
		metadata: z.looseObject({ timestamp: z.string(), component: z.looseObject({ name: z.string() }) }),
		components: z.array(z.looseObject({ "bom-ref": z.string() })),
		dependencies: z.array(z.looseObject({ ref: z.string(), dependsOn: z.array(z.string()).default([]) })),
	});
	const all = document.parse(
		JSON.parse(run("npm", ["sbom", "--sbom-format=cyclonedx", "--package-lock-only"]).toString()),
	);
	const shipped = new Set([`${name}@${version}`, ...shippedPackages().map((one) => `${one.name}@${one.version}`)]);
	const isShipped = (ref: string) => shipped.has(ref);
	const timestamp = new Date(Number(SOURCE_DATE_EPOCH) * 1000).toISOString();
	// npm names the component after the folder of the clone.
	const component = { ...all.metadata.component, name };
	const content = {
		...all,
		metadata: { ...all.metadata, timestamp, component },
		components: all.components.filter((one) => isShipped(one["bom-ref"])),
		dependencies: all.dependencies
			.filter(({ ref }) => isShipped(ref))
			.map((one) => ({ ...one, dependsOn: one.dependsOn.filter(isShipped) })),
	};
	const digest = digestOf(Buffer.from(JSON.stringify({ ...content, serialNumber: "" })));
	const parts = /^(.{8})(.{4})(.{3})(.{3})(.{12})/.exec(digest)?.slice(1) ?? [];
	// A UUID of version 8, which is made of the content (RFC 9562, section 5.8).
	const [a, b, c, d, e] = parts;
	return `${JSON.stringify({ ...content, serialNumber: `urn:uuid:${a}-${b}-8${c}-8${d}-${e}` }, undefined, 2)}\n`;
}

function digestOf(bytes: Buffer): string {
	return createHash("sha256").update(bytes).digest("hex");
}
