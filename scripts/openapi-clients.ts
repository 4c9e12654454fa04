/**
 * `npm run openapi-clients -- <openapi-generator-cli.jar> [folder of more records]`: generates clients in Go, Python and
 * TypeScript from dist/openapi.json with the defaults of openapi-generator, compiles them, and lets each read all captured
 * records and write them again. Needs java, go, and python3 with pydantic, urllib3 and python-dateutil.
 */

import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "vite";
import { ConversationInfoSchema } from "../gen/conversations/v1/conversation_pb.js";
import { diffMessages } from "../src/conversations/read/updates.ts";
import { RecordFormat } from "../src/record/record-format.ts";
import { capturedSequences, corpus } from "../test/support/fixtures.ts";

const ROOT = join(import.meta.dirname, "..");
const format = new RecordFormat();

/** A language: its generator, and the program that reads a record from each line and writes it, or an error, again. */
interface Language {
	readonly generator: string;
	/** Whether its points in time have milliseconds only. */
	readonly hasMilliseconds?: true;
	/** A name of members that the generated code loses. Records with it are not compared. */
	readonly loses?: string;
	/** Compiles the client in a folder, and returns the lines that the program writes. */
	readonly run: (folder: string, lines: string) => Promise<string>;
}

const GO = `package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	openapi "github.com/GIT_USER_ID/GIT_REPO_ID"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<30)
	for lines.Scan() {
		var record openapi.ConversationInfo
		text, err := []byte(nil), json.Unmarshal(lines.Bytes(), &record)
		if err == nil {
			text, err = json.Marshal(record)
		}
		if err != nil {
			text, _ = json.Marshal(map[string]string{"error": err.Error()})
		}
		fmt.Println(string(text))
	}
}
`;

const PYTHON = `import json, sys
from openapi_client.models.conversation_info import ConversationInfo

for line in sys.stdin:
    try:
        print(ConversationInfo.from_json(line).to_json())
    except Exception as error:
        print(json.dumps({"error": str(error)}))
`;

// The generated code writes members of objects that are open to further ones under their names in camel case, too.
const TYPESCRIPT = `import { readFileSync } from "node:fs";
import { ConversationInfoFromJSON, ConversationInfoToJSON } from "./index.ts";

function only(written: any, read: any): any {
	if (Array.isArray(written)) return written.map((item, n) => only(item, read?.[n]));
	if (typeof written !== "object" || written === null || typeof read !== "object" || read === null) return written;
	return Object.fromEntries(Object.keys(read).map((name) => [name, only(written[name], read[name])]));
}

for (const line of readFileSync(0, "utf8").trimEnd().split("\\n")) {
	const read = ConversationInfoFromJSON(JSON.parse(line));
	console.log(JSON.stringify(only(JSON.parse(JSON.stringify(ConversationInfoToJSON(read))), JSON.parse(line))));
}
`;

const LANGUAGES: Readonly<Record<string, Language>> = {
	go: {
		generator: "go",
		run: async (folder, lines) => {
			mkdirSync(join(folder, "records"));
			writeFileSync(join(folder, "records", "main.go"), GO);
			execute(folder, "go", ["build", "./..."]);
			return execute(folder, "go", ["run", "./records"], lines);
		},
	},
	python: {
		generator: "python",
		run: async (folder, lines) => {
			writeFileSync(join(folder, "records.py"), PYTHON);
			execute(folder, "python3", ["-m", "compileall", "-q", "openapi_client"]);
			return execute(folder, "python3", ["records.py"], lines);
		},
	},
	typescript: {
		generator: "typescript-fetch",
		hasMilliseconds: true,
		// It assigns the members of maps to plain objects, which take this one for their prototype.
		loses: "__proto__",
		run: async (folder, lines) => {
			const options = ["--strict", "--noEmit", "--target", "es2022", "--module", "preserve", "--lib", "es2022,dom"];
			execute(folder, join(ROOT, "node_modules/.bin/tsc"), [...options, "--ignoreConfig", "index.ts"]);
			writeFileSync(join(folder, "records.ts"), TYPESCRIPT);
			const logLevel = "error";
			await build({ root: folder, configFile: false, logLevel, build: { ssr: "records.ts", outDir: "built" } });
			return execute(folder, process.execPath, ["built/records.mjs"], lines);
		},
	},
};

/** Runs a program to its end. @throws Error with what it printed, when it fails */
function execute(cwd: string, program: string, parameters: readonly string[], input = ""): string {
	const ended = spawnSync(program, parameters, { cwd, input, encoding: "utf8", maxBuffer: 2 ** 30 });
	if (ended.status === null) throw ended.error;
	if (ended.status !== 0)
		throw new Error(`${program} failed: ${ended.stdout.slice(-4000)}${ended.stderr.slice(-4000)}`);
	return ended.stdout;
}

/** Returns the captured records, and those of the files in a folder, each as a line. */
function recordLines(folder: string | undefined): string[] {
	const captured = corpus().map(({ bytes }) => bytes.toString());
	const sequences = capturedSequences().flatMap(({ posts }) =>
		posts.filter(({ webhook }) => webhook === "conversations").map(({ body }) => body),
	);
	const more = folder === undefined ? [] : readdirSync(folder).map((name) => readFileSync(join(folder, name), "utf8"));
	return [...captured, ...sequences, ...more].map((text) => text.replaceAll(/\s*\n\s*/g, " "));
}

const [jar, more, ...others] = process.argv.slice(2);
if (jar === undefined || others.length > 0) {
	console.error("usage: npm run openapi-clients -- <openapi-generator-cli.jar> [folder of more records]");
	process.exit(2);
}
const lines = recordLines(more);
const folder = mkdtempSync(join(tmpdir(), "openapi-clients-"));
process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
for (const [language, { generator, run, hasMilliseconds, loses }] of Object.entries(LANGUAGES)) {
	const target = join(folder, language);
	const generated = ["generate", "-i", join(ROOT, "dist/openapi.json"), "-g", generator, "-o", target];
	execute(folder, "java", ["-jar", jar, ...generated]);
	const compared = lines.filter((line) => loses === undefined || !line.includes(`"${loses}":`));
	const written = (await run(target, compared.map((line) => `${line}\n`).join(""))).trimEnd().split("\n");
	const wrong = compared.flatMap(
		(line, n) => difference(hasMilliseconds === undefined ? line : withMilliseconds(line), written[n] ?? "") ?? [],
	);
	console.log(
		`${language}: ${compared.length - wrong.length} of ${compared.length} records were read and written unchanged`,
	);
	if (compared.length < lines.length)
		console.log(`  ${lines.length - compared.length} with a member ${loses} left out`);
	for (const text of new Set(wrong)) console.log(`  ${text}`);
	if (wrong.length > 0) process.exitCode = 1;
}

/** Returns a record whose points in time are cut to milliseconds. */
function withMilliseconds(line: string): string {
	return line.replaceAll(/"(created_at|updated_at)":\s*"([^"]*)"/g, (member, name, time) =>
		Number.isNaN(Date.parse(time)) ? member : `"${name}":"${new Date(time).toISOString()}"`,
	);
}

/** Returns what differs between a record and what a client wrote, or its error; undefined if they are the same record. */
function difference(before: string, after: string): string | undefined {
	try {
		const [one, other] = [before, after].map((text) => format.fromJson(JSON.parse(text)));
		if (one === undefined || other === undefined) return undefined;
		const paths = diffMessages(ConversationInfoSchema, one, other);
		return paths.length === 0 ? undefined : `changed: ${paths.join(", ")}`;
	} catch {
		return after.slice(0, 1000);
	}
}
