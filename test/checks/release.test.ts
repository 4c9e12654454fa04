import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import clientPackage from "../../clients/typescript/package.json" with { type: "json" };
import packageJson from "../../package.json" with { type: "json" };
import lockfile from "../../package-lock.json" with { type: "json" };
import { openApiDocument } from "../../scripts/openapi/document.ts";
import { ACCEPTED, licencesPage } from "../../scripts/release/licences.ts";
import { shippedPackages } from "../../scripts/release/shipped.ts";
import { RecordFormat } from "../../src/record/record-format.ts";
import { ROOT } from "../support/start-command.ts";

const textOf = (path: string) => readFileSync(join(ROOT, path), "utf8");

test("all parts have the same version, which the changelog describes", () => {
	const found = (path: string, pattern: RegExp) => pattern.exec(textOf(path))?.[1];
	expect({
		lockfile: lockfile.version,
		client: clientPackage.version,
		openapi: openApiDocument(new RecordFormat().plan).info,
		rust: found("clients/rust/Cargo.toml", /^version = "(.*)"$/m),
		java: found("clients/java/pom.xml", /<version>(.*?)<\/version>/),
		dockerfile: found("deploy/Dockerfile", /--tag conversation-update-webhook-service:(\S+)/),
		kubernetes: found("deploy/kubernetes.yaml", /image: conversation-update-webhook-service:(\S+)/),
		changelog: found("CHANGELOG.md", /^## \[(\d[^\]]*)\]/m),
	}).toEqual({
		lockfile: packageJson.version,
		client: packageJson.version,
		openapi: expect.objectContaining({ version: packageJson.version }),
		rust: packageJson.version,
		java: packageJson.version,
		dockerfile: packageJson.version,
		kubernetes: packageJson.version,
		changelog: packageJson.version,
	});
});

test("users get packages of accepted licences only, which docs/licences.md lists", () => {
	const names = shippedPackages().map(({ name }) => name);
	expect(names).toEqual(expect.arrayContaining(["@grpc/grpc-js", "preact", "zod"]));
	expect(names).not.toContain("vitest");
	expect(shippedPackages().filter(({ license }) => !ACCEPTED.includes(license))).toEqual([]);
	expect(textOf("docs/licences.md")).toBe(licencesPage());
});
