import { afterAll, beforeAll, expect, test } from "vitest";
import { Certificates } from "../../support/certificates.ts";
import { TempFolder } from "../../support/temp.ts";
import { connected, failureOf } from "./connecting.ts";
import { PostgresServer } from "./server.ts";

const certificates = new Certificates();
afterAll(() => certificates[Symbol.dispose]());
const file = (name: string) => certificates.path(name);
/** pg_hba.conf that accepts TLS connections only. The role agent-1 needs a certificate. */
const ACCESS = "hostssl all agent-1 127.0.0.1/32 cert\nhostssl all all 127.0.0.1/32 scram-sha-256\n";

const folder = new TempFolder();
/** Servers with a certificate for 127.0.0.1 and with one for another name. */
let server: PostgresServer;
let misnamed: PostgresServer;

async function start(certificate: string): Promise<PostgresServer> {
	const made = await PostgresServer.create(folder.file(certificate));
	made.write("server.crt", certificates.pem(`${certificate}.crt`));
	made.write("server.key", certificates.pem(`${certificate}.key`));
	made.write("ca.crt", certificates.pem("ca.crt"));
	made.configure({ ssl: "on", ssl_ca_file: "ca.crt" });
	await made.start();
	await made.sql('CREATE ROLE "agent-1" LOGIN');
	made.write("pg_hba.conf", ACCESS);
	await made.sql("SELECT pg_reload_conf()");
	return made;
}

beforeAll(async () => {
	[server, misnamed] = await Promise.all([start("server"), start("agent")]);
});

afterAll(async () => {
	await Promise.all([server, misnamed].map((each) => each.stop("immediate")));
	folder[Symbol.dispose]();
});

/** Returns the user, TLS state and client certificate that the server sees, or the error of the connection. */
async function session(url: string): Promise<unknown> {
	const text =
		"SELECT usename, ssl, client_dn FROM pg_stat_activity JOIN pg_stat_ssl USING (pid) WHERE pid = pg_backend_pid()";
	return failureOf(
		connected(url).then(({ connections }) => connections.read(async (open) => (await open.query({ text }))[0])),
	);
}

const refused = (port: number, reason: string) => ({
	type: "ServiceError",
	kind: "unavailable",
	message: "no server of the database accepts writes",
	cause: `127.0.0.1:${port}: ${reason}`,
});
const encrypted = [{ usename: "postgres", ssl: true, client_dn: null }];

test.each([
	"",
	"?sslmode=prefer",
	"?sslmode=require",
	`?sslmode=require&sslrootcert=${file("ca.crt")}`,
	`?sslmode=verify-ca&sslrootcert=${file("ca.crt")}`,
	`?sslmode=verify-full&sslrootcert=${file("ca.crt")}`,
])("the connection is encrypted with the URL parameters %j", async (parameters) => {
	expect(await session(server.url(parameters))).toEqual(encrypted);
});

test("a server whose certificate is from another authority is refused", async () => {
	const reason = "self-signed certificate in certificate chain";
	for (const authority of [file("foreign.crt"), "system"])
		for (const mode of ["require", "verify-ca", "verify-full"])
			expect(await session(server.url(`?sslmode=${mode}&sslrootcert=${authority}`))).toEqual(
				refused(server.port, reason),
			);
});

test("a server whose certificate is for another name is refused by verify-full, not by verify-ca", async () => {
	const url = (mode: string) => misnamed.url(`?sslmode=${mode}&sslrootcert=${file("ca.crt")}`);
	expect(await session(url("verify-ca"))).toEqual(encrypted);
	const reason = "Hostname/IP does not match certificate's altnames: IP: 127.0.0.1 is not in the cert's list: ";
	expect(await session(url("verify-full"))).toEqual(refused(misnamed.port, reason));
});

test("a connection without TLS fails if the server or the URL requires TLS, and succeeds otherwise", async () => {
	expect(await session(server.url("?sslmode=disable"))).toEqual(
		refused(
			server.port,
			'no pg_hba.conf entry for host "127.0.0.1", user "postgres", database "postgres", no encryption (SQLSTATE 28000)',
		),
	);
	await using clear = await PostgresServer.create(folder.file("clear"));
	await clear.start();
	expect(await session(clear.url())).toEqual([{ usename: "postgres", ssl: false, client_dn: null }]);
	expect(await session(clear.url("?sslmode=require"))).toEqual(
		refused(clear.port, "The server does not support SSL connections"),
	);
});

test("a client certificate replaces the password", async () => {
	const url = server.url(`?sslmode=verify-full&sslrootcert=${file("ca.crt")}`);
	const own = url.replace(/\/\/[^@]*@/, "//agent-1@");
	expect(await session(`${own}&sslcert=${file("agent.crt")}&sslkey=${file("agent.key")}`)).toEqual([
		{ usename: "agent-1", ssl: true, client_dn: "/CN=agent-1" },
	]);
	expect(await session(own)).toEqual(
		refused(server.port, "connection requires a valid client certificate (SQLSTATE 28000)"),
	);
	expect(await session(server.url("?sslmode=verify-ca&sslrootcert=/nowhere.crt"))).toEqual(
		refused(server.port, "ENOENT: no such file or directory, open '/nowhere.crt'"),
	);
});
