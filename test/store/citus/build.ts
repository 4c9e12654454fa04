import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

/** Packages of Debian with which Citus is built and runs. */
const PACKAGES = [
	"postgresql-15",
	"postgresql-server-dev-15",
	"liblz4-dev",
	"libzstd-dev",
	"libicu-dev",
	"libkrb5-dev",
	"libpam0g-dev",
	"libselinux1-dev",
	"libxslt1-dev",
	"libreadline-dev",
	"libssl-dev",
	"zlib1g-dev",
	"flex",
	"gcc",
	"make",
	"xz-utils",
];

/** The archive beside a checkout. */
const BESIDE = join(import.meta.dirname, "../../../../shared/citus/citus-13.0.5.tar.xz");

const SOURCE = process.env.CITUS_SOURCE ?? BESIDE;

/**
 * Builds $1 into $2, unless that is there. Of processes that do so at the same time one builds. PostgreSQL finds its files
 * by the place of its programs, so a copy works in any folder, and nothing of the system changes.
 */
const BUILD = `
set -eu
exec 9>"$2.lock"
flock 9
[ ! -e "$2" ] || exit 0
rm -rf "$2.source" "$2.made"
mkdir -p "$2.source" "$2.made/usr/lib/postgresql" "$2.made/usr/share/postgresql"
tar -xJf "$1" -C "$2.source"
cd "$2.source"
./configure --without-libcurl PG_CONFIG=/usr/lib/postgresql/15/bin/pg_config
make -j "$(nproc)"
cp -a /usr/lib/postgresql/15 "$2.made/usr/lib/postgresql/"
cp -a /usr/share/postgresql/15 "$2.made/usr/share/postgresql/"
make install DESTDIR="$2.made"
rm -rf "$2.source"
mv "$2.made" "$2"
`;

/** Returns why Citus cannot be built on this machine; undefined when it can. */
export async function whyNoCitus(): Promise<string | undefined> {
	if (!existsSync(SOURCE)) return `CITUS_SOURCE names no archive of Citus 13.0.5, and there is none at ${BESIDE}`;
	const missing = await missingPackages();
	return missing.length === 0 ? undefined : `packages of Debian are missing: ${missing.join(" ")}`;
}

/**
 * Returns the folder of PostgreSQL's programs with Citus. Builds them the first time, in a minute or two, into the folder
 * for temporary files, from the archive that CITUS_SOURCE names.
 *
 * @throws Error when the archive or packages of Debian are missing; the message names them
 */
export async function citusPrograms(): Promise<string> {
	const reason = await whyNoCitus();
	if (reason !== undefined) throw new Error(`There is no Citus: ${reason}`);
	const digest = createHash("sha256").update(readFileSync(SOURCE)).digest("hex");
	const folder = join(tmpdir(), `citus-${digest}`);
	if (!existsSync(folder)) {
		process.stderr.write(`Citus is built into ${folder}.\n`);
		await promisify(execFile)("sh", ["-c", BUILD, "sh", SOURCE, folder], { maxBuffer: 2 ** 26 });
	}
	return join(folder, "usr/lib/postgresql/15/bin");
}

async function missingPackages(): Promise<string[]> {
	// A package has a line such as "libicu-dev:amd64 install". On a system without dpkg all are missing.
	const { stdout } = await promisify(execFile)("dpkg", ["--get-selections", ...PACKAGES]).catch(() => ({ stdout: "" }));
	const installed = new Set([...stdout.matchAll(/^([^\s:]+)\S*\s+(?:install|hold)$/gm)].map(([, name]) => name));
	return PACKAGES.filter((name) => !installed.has(name));
}
