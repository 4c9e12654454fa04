/** Parses the URL of an agent server; undefined for another one, such as one with a user name. */
export function parseAgentServer(text: string): URL | undefined {
	const url = URL.canParse(text) ? new URL(text) : undefined;
	if (url === undefined || !/^https?:$/.test(url.protocol)) return undefined;
	return url.username + url.password + url.search + url.hash === "" ? url : undefined;
}
