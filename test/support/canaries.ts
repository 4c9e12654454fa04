import type { JsonObject } from "@bufbuild/protobuf";

/**
 * Secrets that no descriptor option alone marks. The key names the place; the function returns members of a record with
 * the secret there.
 */
export const SECRET_MEMBERS: Readonly<Record<string, (secret: string) => JsonObject>> = {
	"MCP auth of an unknown strategy": (secret) => mcp({ auth: { strategy: "custom", deep: [{ any: secret }] } }),
	"unnamed member of MCP auth": (secret) => mcp({ auth: { strategy: "bearer", value: "v", any: secret } }),
	"user name of MCP auth": (secret) => mcp({ auth: { strategy: "basic", username: secret, password: "p" } }),
	"env of a nested MCP server": (secret) => native({ mcp_config: { mcpServers: { s: { env: { ANY: secret } } } } }),
	"headers of a nested MCP server": (secret) =>
		native({ mcp_config: { mcpServers: { s: { headers: { Any: secret } } } } }),
	"auth of a nested MCP server": (secret) =>
		native({ mcp_config: { mcpServers: { s: { auth: { strategy: "x", any: [secret] } } } } }),
	"unnamed member of a StaticSecret": (secret) => ({
		secret_registry: { secret_sources: { A: { kind: "StaticSecret", value: "v", any: secret } } },
	}),
	"password in the model's address": (secret) => native({ llm: { model: "m", base_url: `https://u:${secret}@h/` } }),
	"password in the workspace's address": (secret) => ({
		workspace: { kind: "RemoteWorkspace", working_dir: "/w", host: `https://u:${secret}@h/` },
	}),
	"password in a hook's command": (secret) => ({
		hook_config: { stop: [{ hooks: [{ command: `curl https://u:${secret}@h/` }] }] },
	}),
	"password in an address in free-form JSON": (secret) => ({ agent_state: { remote: `https://u:${secret}@h/` } }),
	"password in an address in an unnamed member": (secret) => ({ remote: { url: `https://u:${secret}@h/` } }),
	"unnamed passphrase": (secret) => ({ passphrase: secret }),
	"unnamed member beside a secret": (secret) => native({ llm: { model: "m", api_key: "k", backup_api_key: secret } }),
	"session id in the agent's state": (secret) => ({ agent_state: { acp_session_id: secret } }),
	"key in a tool's parameters": (secret) => native({ tools: [{ name: "t", params: { nested: { keyfile: secret } } }] }),
	"override of a capability under the name of a secret": (secret) =>
		native({ llm: { model: "m", capability_overrides: { API_KEY: secret } } }),
	"nested override of a capability under the name of a secret": (secret) =>
		native({ llm: { model: "m", capability_overrides: { auth_token: { any: [secret] } } } }),
	"token alone in an address": (secret) => ({ agent_state: { remote: `https://${secret}@github.com/o/r.git` } }),
	"other names of secrets": (secret) => ({
		agent_state: { pwd: secret, jwt: secret, GITHUB_PAT: secret, dsn: [secret], connection_string: secret },
	}),
	"connection string of a database": (secret) => ({ agent_state: { url: `postgresql://user:${secret}@db/x` } }),
};

function native(members: JsonObject): JsonObject {
	return { agent: { kind: "Agent", llm: { model: "m" }, ...members } };
}

function mcp(server: JsonObject): JsonObject {
	return native({ mcp_config: { s: { url: "https://x", ...server } } });
}
