import { serveJson } from "./json-server.ts";

/** The least that a webhook in JSON can do: a server that reads the body and parses it. */

serveJson((_json, _request, succeed) => succeed());
