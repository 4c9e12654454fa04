import { serveJson } from "./json-server.ts";

/** Lower bound of the cost of a JSON webhook: a server that only reads and parses the body. */

serveJson((_json, _request, succeed) => succeed());
