import "./style.css";
import { useSignal } from "@preact/signals";
import { type Endpoint, EndpointState } from "../../../../gen/conversations/v1/forwarding_service_pb.js";
import { ColumnHeads } from "../../parts/column-heads.tsx";
import { full } from "../../parts/format.ts";
import { Notice, ProblemNotice } from "../../parts/notice.tsx";
import { Ago } from "../../parts/time.tsx";
import { usePolled } from "../../service/polled.ts";
import { problemOf } from "../../service/service.ts";
import { addressOf, go, query } from "../../shell/route.ts";
import { useTitle } from "../../shell/title.ts";
import { EndpointView } from "./endpoint.tsx";
import { client, Secret } from "./state.tsx";

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
				<a href={addressOf(["forwarding"], { endpoint: name, ...(owner === "" ? {} : { owner }) })}>{name}</a>{" "}
				{owner !== "" && <span class="tag">{owner}</span>}
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

/** Changes that can be chosen, with whether they are at first. */
const CHANGES: ReadonlyMap<string, boolean> = new Map([
	...["FINISHED", "FAILED", "STUCK", "WAITING"].map((name) => [name, true] as const),
	...["STARTED", "RUNNING", "PAUSED", "RESUMED", "DELETED", "UPDATED", "ERASED"].map((name) => [name, false] as const),
	...["GAP", "BUDGET", "SILENT"].map((name) => [name, false] as const),
]);

/** Creates an endpoint, and shows its secret once. */
function NewEndpoint({ onMade }: { readonly onMade: () => void }) {
	const name = useSignal("");
	const url = useSignal("");
	const form = useSignal("plain");
	const chosen = useSignal<ReadonlySet<string>>(
		new Set([...CHANGES].flatMap(([one, isFirst]) => (isFirst ? one : []))),
	);
	const problem = useSignal("");
	const secret = useSignal("");
	const make = (): void => {
		problem.value = "";
		const request = { name: name.value.trim(), url: url.value.trim(), form: form.value, changes: [...chosen.value] };
		client.createEndpoint(request).then(
			(made) => {
				secret.value = made.secret;
				go(
					addressOf(["forwarding"], {
						endpoint: request.name,
						...(made.endpoint?.owner ? { owner: made.endpoint.owner } : {}),
					}),
				);
				name.value = "";
				url.value = "";
				onMade();
			},
			(error: unknown) => {
				problem.value = problemOf(error).text;
			},
		);
	};
	return (
		<form
			class="card"
			onSubmit={(event) => {
				event.preventDefault();
				make();
			}}
		>
			<h2>New endpoint</h2>
			<p class="row">
				<label class="row">
					Name
					<input
						type="text"
						required
						autocomplete="off"
						value={name.value}
						onInput={(event) => {
							name.value = event.currentTarget.value;
						}}
					/>
				</label>
				<label class="row">
					Address
					<input
						type="text"
						required
						autocomplete="off"
						placeholder="https://"
						value={url.value}
						onInput={(event) => {
							url.value = event.currentTarget.value;
						}}
					/>
				</label>
				<label class="row">
					Form
					<select
						value={form.value}
						onChange={(event) => {
							form.value = event.currentTarget.value;
						}}
					>
						{["plain", "cloudevents", "chat"].map((one) => (
							<option key={one}>{one}</option>
						))}
					</select>
				</label>
			</p>
			<fieldset class="changes">
				<legend class="small muted">Told of</legend>
				{[...CHANGES.keys()].map((one) => (
					<label key={one}>
						<input
							type="checkbox"
							checked={chosen.value.has(one)}
							onChange={(event) => {
								const next = new Set(chosen.value);
								if (event.currentTarget.checked) next.add(one);
								else next.delete(one);
								chosen.value = next;
							}}
						/>
						<code>{one}</code>
					</label>
				))}
			</fieldset>
			<p class="row">
				<button type="submit" class="primary" disabled={chosen.value.size === 0}>
					Create
				</button>
				{problem.value !== "" && (
					<span class="problem-text" role="alert">
						{problem.value}
					</span>
				)}
			</p>
			{secret.value !== "" && (
				<Secret
					text={secret.value}
					onDone={() => {
						secret.value = "";
					}}
				/>
			)}
		</form>
	);
}
