/** `npm run licences`: writes docs/licences.md. */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { shippedPackages } from "./shipped.ts";

/** Licences under which a package may be given to users with the service. */
export const ACCEPTED = [
	"(Apache-2.0 AND BSD-3-Clause)",
	"0BSD",
	"Apache-2.0",
	"BSD-2-Clause",
	"BSD-3-Clause",
	"BlueOak-1.0.0",
	"ISC",
	"MIT",
];

/** Returns the page that lists the licences of the packages that users get. */
export function licencesPage(): string {
	const packages = shippedPackages();
	const sections = ACCEPTED.flatMap((licence) => {
		const names = packages
			.filter(({ license }) => license === licence)
			.map(({ name, version }) => `${name}@${version}`);
		return names.length === 0 ? [] : [`## ${licence}\n\n${names.join(", ")}\n`];
	});
	return `# Licences

The service has the licence MIT (LICENSE). These packages are installed with it, or are part of the pages of its console.
\`npm run licences\` writes this page from package-lock.json. Protos of other projects are in \`third_party\`, under the
licences that their first lines name.

${sections.join("\n")}`;
}

if (process.argv[1] === fileURLToPath(import.meta.url))
	writeFileSync(join(import.meta.dirname, "../../docs/licences.md"), licencesPage());
