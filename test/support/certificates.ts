import { generateKeyPairSync } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import forge from "node-forge";
import { TempFolder } from "./temp.ts";

/** Types of alternative names (RFC 5280, section 4.2.1.6). */
const [DNS, URI, IP] = [2, 6, 7] as const;
const LOCAL = [
	{ type: DNS, value: "localhost" },
	{ type: IP, ip: "127.0.0.1" },
];
/** Common name and alternative names of each certificate, by the base name of its files. */
const CERTIFICATES = {
	server: ["server", LOCAL],
	renewed: ["renewed", LOCAL],
	agent: ["agent-1", [{ type: DNS, value: "agent" }]],
	stranger: ["stranger", [{ type: DNS, value: "stranger" }]],
	workload: [undefined, [{ type: URI, value: "spiffe://test/workload" }]],
} as const;

/**
 * A folder with certificates for a test, valid for a day: `NAME.crt` and `NAME.key` in PEM, `ca.crt` of their
 * certificate authority, and `foreign.crt`, which another authority has issued for the subject of `agent.crt`.
 */
export class Certificates implements Disposable {
	readonly #folder = new TempFolder();

	constructor() {
		const authority = new Authority("test authority");
		writeFileSync(this.path("ca.crt"), authority.certificate);
		for (const [name, [commonName, names]] of Object.entries(CERTIFICATES))
			this.#write(name, authority.issue(commonName, names));
		const [agent, names] = CERTIFICATES.agent;
		this.#write("foreign", new Authority("other authority").issue(agent, names));
	}

	/** Returns the path of a file. */
	path(name: string): string {
		return this.#folder.file(name);
	}

	/** Returns the content of a file. */
	pem(name: string): Buffer {
		return readFileSync(this.path(name));
	}

	[Symbol.dispose](): void {
		this.#folder[Symbol.dispose]();
	}

	#write(name: string, { certificate, key }: Issued): void {
		writeFileSync(this.path(`${name}.crt`), certificate);
		writeFileSync(this.path(`${name}.key`), key, { mode: 0o600 });
	}
}

/** A certificate with its key, in PEM. */
interface Issued {
	readonly certificate: string;
	readonly key: string;
}

type Name = readonly { readonly shortName: "CN"; readonly value: string }[];

/** A certificate authority with a self-signed certificate. */
class Authority {
	readonly certificate: string;
	readonly #name: Name;
	readonly #keys = keyPair();
	#issued = 1;

	constructor(commonName: string) {
		this.#name = nameOf(commonName);
		const extensions = [{ name: "basicConstraints", cA: true, critical: true }];
		this.certificate = this.#sign(this.#name, this.#keys.publicKey, extensions);
	}

	issue(commonName: string | undefined, altNames: readonly object[]): Issued {
		const { pem, publicKey } = keyPair();
		const extensions = [{ name: "subjectAltName", altNames }];
		return { certificate: this.#sign(nameOf(commonName), publicKey, extensions), key: pem };
	}

	#sign(subject: Name, publicKey: forge.pki.rsa.PublicKey, extensions: object[]): string {
		const made = forge.pki.createCertificate();
		made.publicKey = publicKey;
		made.serialNumber = String(this.#issued++).padStart(2, "0");
		// The clocks of two processes may differ a little.
		made.validity.notBefore = new Date(Date.now() - 3_600_000);
		made.validity.notAfter = new Date(Date.now() + 86_400_000);
		made.setSubject([...subject]);
		made.setIssuer([...this.#name]);
		made.setExtensions(extensions);
		made.sign(this.#keys.privateKey, forge.md.sha256.create());
		return forge.pki.certificateToPem(made);
	}
}

function nameOf(commonName: string | undefined): Name {
	return commonName === undefined ? [] : [{ shortName: "CN", value: commonName }];
}

function keyPair() {
	const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
	const pem = privateKey.export({ type: "pkcs1", format: "pem" }).toString();
	const key = forge.pki.privateKeyFromPem(pem);
	return { pem, privateKey: key, publicKey: forge.pki.setRsaPublicKey(key.n, key.e) };
}
