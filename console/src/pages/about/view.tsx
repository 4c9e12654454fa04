import "./style.css";
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { GetServiceInfoResponse } from "../../../../gen/conversations/v1/service_info_service_pb.js";
import { loadedLater } from "../../parts/loaded-later.tsx";
import { Notice, ProblemNotice } from "../../parts/notice.tsx";
import { PointAgentServer } from "../../parts/point-agent-server.tsx";
import { Ago } from "../../parts/time.tsx";
import { BASE_URL, KEY_REFUSED, type Problem, problemOf, serviceInfo } from "../../service/service.ts";
import { signOut } from "../../service/session.ts";
import { useTitle } from "../../shell/title.ts";

const Keys = loadedLater<Parameters<typeof import("./keys.tsx")["default"]>[0]>(() => import("./keys.tsx"), {
	waiting: null,
	failed: () => <span class="problem-text small">The access keys cannot be loaded now.</span>,
});

/** What the service is, and how to point an agent server at it. */
export default function AboutPage() {
	useTitle("About");
	const info = useSignal<GetServiceInfoResponse | undefined>(undefined);
	const problem = useSignal<Problem | undefined>(undefined);
	const load = (): void => {
		serviceInfo.getServiceInfo({}).then(
			(response) => {
				info.value = response;
				problem.value = undefined;
			},
			(error: unknown) => {
				problem.value = problemOf(error);
				if (problem.value.kind === "key") signOut(KEY_REFUSED);
			},
		);
	};
	useEffect(load, []);
	if (problem.value !== undefined) return <ProblemNotice problem={problem.value} retry={load} />;
	if (info.value === undefined) return <Notice title="Loading…" />;
	return (
		<>
			<h1 class="visually-hidden">About</h1>
			<div class="about">
				<PointAgentServer />
				<Facts info={info.value} />
				{info.value.callerScopes.includes("keys") && (
					<Keys scopes={info.value.callerScopes} owner={info.value.callerOwner} />
				)}
				<Elsewhere />
			</div>
		</>
	);
}

/** Where the description of the API, the metrics and the docs are. */
function Elsewhere() {
	return (
		<section class="card">
			<h2>Elsewhere</h2>
			<table>
				<tbody>
					<tr>
						<th scope="row">API</th>
						<td>
							<a href={`${BASE_URL}/openapi.json`}>/openapi.json</a> describes the requests in JSON. The same address
							serves gRPC-Web and Connect.
						</td>
					</tr>
					<tr>
						<th scope="row">Metrics</th>
						<td>
							<code>{BASE_URL}/metrics</code> for Prometheus, with a key that has the scope <code>metrics</code>
						</td>
					</tr>
					<tr>
						<th scope="row">Docs</th>
						<td>
							<code>README.md</code> and <code>docs/</code> in the package of the service
						</td>
					</tr>
				</tbody>
			</table>
		</section>
	);
}

function Facts({ info }: { readonly info: GetServiceInfoResponse }) {
	const days = (value: number | undefined): string => (value === undefined ? "for ever" : `${value} days`);
	const facts: readonly (readonly [string, string])[] = [
		["Version", info.version],
		["Store", `${info.engine}, ${info.storeHealthy ? "healthy" : "cannot be read or written"}`],
		["History is kept", days(info.retentionDays)],
		["Events are kept", days(info.eventRetentionDays)],
		["Secrets are stored", info.encryptsSecrets ? "encrypted" : "redacted"],
		["Time zone of events", info.eventTimeZone],
		["Your key", `${info.caller}: ${info.callerScopes.join(", ")}`],
		["Your owner", info.callerOwner === "" ? "none: the key sees everything" : info.callerOwner],
	];
	return (
		<section class="card">
			<h2>This service</h2>
			<table>
				<tbody>
					{facts.map(([name, value]) => (
						<tr key={name}>
							<th scope="row">{name}</th>
							<td>{value}</td>
						</tr>
					))}
					<tr>
						<th scope="row">Started</th>
						<td>
							<Ago time={info.startedAt} />
						</td>
					</tr>
				</tbody>
			</table>
		</section>
	);
}
