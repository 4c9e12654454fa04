import "./style.css";
import { type Endpoint, EndpointState } from "../../../../gen/conversations/v1/forwarding_service_pb.js";
import { ColumnHeads } from "../../parts/column-heads.tsx";
import { full } from "../../parts/format.ts";
import { Notice, ProblemNotice } from "../../parts/notice.tsx";
import { Ago } from "../../parts/time.tsx";
import { usePolled } from "../../service/polled.ts";
import { query } from "../../shell/route.ts";
import { useTitle } from "../../shell/title.ts";
import { client } from "./client.ts";
import { EndpointView } from "./endpoint.tsx";
import { addressOfEndpoint, NewEndpoint } from "./form.tsx";

/** Milliseconds between two reads of the endpoints. */
const INTERVAL = 5_000;
const COLUMNS = ["Endpoint", "State", "Behind", "Waiting", "Lost", "Last success", "Address"] as const;
/** Columns of numbers. */
const NUMBERS: ReadonlySet<string> = new Set(["Behind", "Waiting", "Lost"]);
const STATES: Readonly<Record<EndpointState, string>> = {
	[EndpointState.UNSPECIFIED]: "not known",
	[EndpointState.ACTIVE]: "✓ active",
	[EndpointState.PAUSED]: "paused",
	[EndpointState.DISABLED]: "✕ disabled",
};

/** The endpoints to which the service sends what happens, and the deliveries of the one in the address. */
export default function ForwardingPage() {
	useTitle("Forwarding");
	const { list, problem, load } = usePolled(async () => (await client.listEndpoints({})).endpoints, INTERVAL);
	if (problem.value !== undefined) return <ProblemNotice problem={problem.value} />;
	if (list.value === undefined) return <Notice title="Loading…" />;
	const [name, owner] = [query.value.get("endpoint"), query.value.get("owner") ?? ""];
	const shown = list.value.find((one) => one.name === name && one.owner === owner);
	return (
		<div class="forwarding">
			<h1 class="visually-hidden">Forwarding</h1>
			{list.value.length === 0 ? (
				<Notice title="No endpoint yet">
					<span>An endpoint is an address to which the service sends what happens to conversations.</span>
				</Notice>
			) : (
				<div class="scroll" role="region" aria-label="Endpoints" tabIndex={0}>
					<table class="card wide">
						<ColumnHeads titles={COLUMNS} numbers={NUMBERS} />
						<tbody>
							{list.value.map((one) => (
								<Line key={`${one.owner}/${one.name}`} endpoint={one} />
							))}
						</tbody>
					</table>
				</div>
			)}
			{shown !== undefined && <EndpointView key={`${owner}/${name}`} endpoint={shown} onChange={() => void load()} />}
			<NewEndpoint onMade={() => void load()} />
		</div>
	);
}

function Line({ endpoint }: { readonly endpoint: Endpoint }) {
	const { name, owner, state, lag, waiting, lost, lastSuccessAt, failingSince, url } = endpoint;
	return (
		<tr>
			<th scope="row">
				<a href={addressOfEndpoint(endpoint)}>{name}</a> {owner !== "" && <span class="tag">{owner}</span>}
			</th>
			<td class={state === EndpointState.DISABLED ? "error" : ""}>
				{STATES[state]}
				{failingSince !== undefined && (
					<div class="small">
						failing, <Ago time={failingSince} />
					</div>
				)}
			</td>
			<td class="number">{full(lag)}</td>
			<td class="number">{full(waiting)}</td>
			<td class="number">{full(lost)}</td>
			<td>{lastSuccessAt === undefined ? <span class="muted">never</span> : <Ago time={lastSuccessAt} />}</td>
			<td>
				<code>{url}</code>
			</td>
		</tr>
	);
}
