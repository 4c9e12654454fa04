import { useSignal } from "@preact/signals";
import {
	type Delivery,
	DeliveryState,
	type Endpoint,
	EndpointState,
	ResumeFrom,
} from "../../../../gen/conversations/v1/forwarding_service_pb.js";
import { ColumnHeads } from "../../parts/column-heads.tsx";
import { ConfirmDialog, TextField } from "../../parts/fields.tsx";
import { ProblemLine } from "../../parts/notice.tsx";
import { Ago } from "../../parts/time.tsx";
import { usePolledPages } from "../../service/polled.ts";
import { problemOf } from "../../service/service.ts";
import { addressOf, go } from "../../shell/route.ts";
import { client } from "./client.ts";
import { EditEndpoint, Secret } from "./form.tsx";

/** Milliseconds between two reads of the deliveries. */
const INTERVAL = 5_000;
const COLUMNS = ["Noticed", "Change", "Conversation", "State", "Tries", ""] as const;

interface EndpointViewProps {
	readonly endpoint: Endpoint;
	/** Called when the endpoint has changed. */
	readonly onChange: () => void;
}

/** An endpoint, what can be done with it, and its deliveries with their tries. */
export function EndpointView({ endpoint, onChange }: EndpointViewProps) {
	const { name, owner, state, reason, position } = endpoint;
	const said = useSignal("");
	const secret = useSignal("");
	const from = useSignal("");
	const isEdited = useSignal(false);
	const isDeleted = useSignal(false);
	const { list, problem, load, more } = usePolledPages(async (pageSize) => {
		const page = await client.listDeliveries({ name, owner, pageSize });
		return { items: page.deliveries, hasMore: page.nextPageToken !== "" };
	}, INTERVAL);
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
			{/* The keys keep an element from becoming another button while a person clicks it. */}
			<p class="row">
				{state === EndpointState.ACTIVE ? (
					<button
						key="pause"
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
						<button key="resume" type="button" onClick={resume(ResumeFrom.POSITION)}>
							Resume
						</button>
						<button key="resume-now" type="button" onClick={resume(ResumeFrom.NOW)}>
							Resume from now
						</button>
					</>
				)}
				<button key="test" type="button" onClick={test}>
					Test
				</button>
				<button key="rotate" type="button" onClick={rotate}>
					New secret
				</button>
				<button
					key="edit"
					type="button"
					aria-expanded={isEdited.value}
					onClick={() => {
						isEdited.value = !isEdited.value;
					}}
				>
					Edit
				</button>
				<button
					key="delete"
					type="button"
					onClick={() => {
						isDeleted.value = true;
					}}
				>
					Delete…
				</button>
			</p>
			{isEdited.value && (
				<EditEndpoint
					endpoint={endpoint}
					onSaved={() => {
						isEdited.value = false;
						said.value = "It is changed.";
						onChange();
					}}
				/>
			)}
			{isDeleted.value && (
				<ConfirmDialog
					title={`Delete the endpoint ${name} for good`}
					action="Delete"
					act={async () => {
						await client.deleteEndpoint({ name, owner });
						go(addressOf(["forwarding"]));
						onChange();
					}}
					onClose={() => {
						isDeleted.value = false;
					}}
				>
					It is told of nothing more. What waits for it and the log of its deliveries are removed.
				</ConfirmDialog>
			)}
			<form
				class="row"
				onSubmit={(event) => {
					event.preventDefault();
					replay();
				}}
			>
				<TextField label="Replay from sequence" text={from} inputMode="numeric" pattern="[1-9][0-9]{0,17}" required />
				<button type="submit">Replay</button>
			</form>
			<p role="status">{said.value}</p>
			<Secret shown={secret} />
			<h3>Deliveries</h3>
			{problem.value !== undefined && <ProblemLine problem={problem.value} retry={() => void load()} />}
			<div class="scroll" role="region" aria-label="Deliveries" tabIndex={0}>
				<table class="wide">
					<ColumnHeads titles={COLUMNS} />
					<tbody>
						{list.value?.map((delivery) => (
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
			{more && (
				<button type="button" onClick={more}>
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
