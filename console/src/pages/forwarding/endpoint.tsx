import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import {
	type Delivery,
	DeliveryState,
	type Endpoint,
	EndpointState,
	ResumeFrom,
} from "../../../../gen/conversations/v1/forwarding_service_pb.js";
import { ProblemLine } from "../../parts/notice.tsx";
import { Ago } from "../../parts/time.tsx";
import { type Problem, problemOf } from "../../service/service.ts";
import { addressOf } from "../../shell/route.ts";
import { client, Secret } from "./state.tsx";

/** Milliseconds between two reads of the deliveries. */
const INTERVAL = 5_000;
/** Number of deliveries that a page adds to the log. */
const PAGE_SIZE = 20;

interface EndpointViewProps {
	readonly endpoint: Endpoint;
	/** Called when the endpoint has changed. */
	readonly onChange: () => void;
}

/** An endpoint, what can be done with it, and its deliveries with their tries. */
export function EndpointView({ endpoint, onChange }: EndpointViewProps) {
	const { name, owner, state, reason, position } = endpoint;
	const deliveries = useSignal<readonly Delivery[]>([]);
	const pages = useSignal(1);
	const hasMore = useSignal(false);
	const problem = useSignal<Problem | undefined>(undefined);
	const said = useSignal("");
	const secret = useSignal("");
	const from = useSignal("");
	const load = async (): Promise<void> => {
		try {
			const page = await client.listDeliveries({ name, owner, pageSize: PAGE_SIZE * pages.value });
			deliveries.value = page.deliveries;
			hasMore.value = page.nextPageToken !== "";
			problem.value = undefined;
		} catch (error) {
			problem.value = problemOf(error);
		}
	};
	useEffect(() => {
		void load();
		const timer = setInterval(() => void load(), INTERVAL);
		return () => clearInterval(timer);
	}, []);
	/** Does something with the endpoint, and says how it went. */
	const act = (work: () => Promise<string>) => () => {
		work()
			.then(
				(text) => {
					said.value = text;
				},
				(error: unknown) => {
					said.value = problemOf(error).text;
				},
			)
			.finally(() => {
				onChange();
				void load();
			});
	};
	const resume = (place: ResumeFrom) =>
		act(async () => {
			await client.resumeEndpoint({ name, owner, from: place });
			return place === ResumeFrom.NOW ? "It goes on from now." : "It goes on from its position.";
		});
	const test = act(async () => {
		const { success, try: one } = await client.testEndpoint({ name, owner });
		return success ? `The test was accepted after ${one?.durationMs} ms.` : `The test failed: ${one?.error}.`;
	});
	const rotate = act(async () => {
		secret.value = (await client.rotateEndpointSecret({ name, owner })).secret;
		return "";
	});
	const replay = act(async () => {
		const sent = await client.replayEndpoint({ name, owner, from: BigInt(from.value), to: position });
		return `${sent.deliveries} are sent again.`;
	});
	return (
		<section class="card" aria-labelledby="endpoint-title">
			<h2 id="endpoint-title">{name}</h2>
			<p class="small muted">{endpoint.changes.join(", ")}</p>
			{reason !== "" && <p class="problem-text">Disabled: {reason}.</p>}
			<p class="row">
				{state === EndpointState.ACTIVE ? (
					<button
						type="button"
						onClick={act(async () => {
							await client.pauseEndpoint({ name, owner });
							return "It is paused.";
						})}
					>
						Pause
					</button>
				) : (
					<>
						<button type="button" onClick={resume(ResumeFrom.POSITION)}>
							Resume
						</button>
						<button type="button" onClick={resume(ResumeFrom.NOW)}>
							Resume from now
						</button>
					</>
				)}
				<button type="button" onClick={test}>
					Test
				</button>
				<button type="button" onClick={rotate}>
					New secret
				</button>
			</p>
			<form
				class="row"
				onSubmit={(event) => {
					event.preventDefault();
					replay();
				}}
			>
				<label class="row">
					Replay from sequence
					<input
						type="text"
						inputMode="numeric"
						pattern="[1-9][0-9]{0,17}"
						required
						value={from.value}
						onInput={(event) => {
							from.value = event.currentTarget.value;
						}}
					/>
				</label>
				<button type="submit">Replay</button>
			</form>
			<p role="status">{said.value}</p>
			{secret.value !== "" && (
				<Secret
					text={secret.value}
					onDone={() => {
						secret.value = "";
					}}
				/>
			)}
			<h3>Deliveries</h3>
			{problem.value !== undefined && <ProblemLine problem={problem.value} retry={() => void load()} />}
			<div class="scroll" role="region" aria-label="Deliveries" tabIndex={0}>
				<table class="wide">
					<thead>
						<tr>
							{["Noticed", "Change", "Conversation", "State", "Tries", ""].map((title) => (
								<th key={title} scope="col">
									{title === "" ? <span class="visually-hidden">Action</span> : title}
								</th>
							))}
						</tr>
					</thead>
					<tbody>
						{deliveries.value.map((delivery) => (
							<Line
								key={delivery.id}
								delivery={delivery}
								retry={act(async () => {
									await client.retryDelivery({ name, owner, id: delivery.id });
									return "It is sent again.";
								})}
							/>
						))}
					</tbody>
				</table>
			</div>
			{hasMore.value && (
				<button
					type="button"
					onClick={() => {
						pages.value += 1;
						void load();
					}}
				>
					Older
				</button>
			)}
		</section>
	);
}

function Line({ delivery, retry }: { readonly delivery: Delivery; readonly retry: () => void }) {
	const { change, conversationId, createdAt, nextTryAt, state, tries } = delivery;
	return (
		<tr>
			<td>
				<Ago time={createdAt} />
			</td>
			<td>{change}</td>
			<td>
				{conversationId === "" ? (
					<span class="muted">none</span>
				) : (
					<a href={addressOf(["conversations", conversationId])}>
						<code>{conversationId.slice(0, 8)}</code>
					</a>
				)}
			</td>
			<td>
				<span class="tag">{DeliveryState[state].toLowerCase()}</span>{" "}
				{nextTryAt !== undefined && tries.length > 0 && (
					<span class="small muted">
						next <Ago time={nextTryAt} />
					</span>
				)}
			</td>
			<td>
				{tries.map((one, n) => (
					<details key={n}>
						<summary>
							{one.status === 0 ? (one.error === "" ? "accepted" : one.error) : one.status}, {String(one.durationMs)}{" "}
							ms, <Ago time={one.at} />
						</summary>
						{one.error !== "" && <p class="small">{one.error}</p>}
						{one.answer !== "" && <pre>{one.answer}</pre>}
					</details>
				))}
			</td>
			<td>
				<button
					type="button"
					onClick={retry}
					aria-label={`Retry ${[change, conversationId.slice(0, 8)].filter(Boolean).join(" of ")}`}
				>
					Retry
				</button>
			</td>
		</tr>
	);
}
