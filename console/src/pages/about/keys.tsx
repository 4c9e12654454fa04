import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { createClient } from "@connectrpc/connect";
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { type AccessKey, AccessKeyService } from "../../../../gen/conversations/v1/access_key_service_pb.js";
import { useCopy } from "../../parts/copy.ts";
import { exactTime } from "../../parts/format.ts";
import { ProblemLine } from "../../parts/notice.tsx";
import { Ago, dateOf, now } from "../../parts/time.tsx";
import { type Problem, problemOf, transport } from "../../service/service.ts";

const client = createClient(AccessKeyService, transport);

/** Scopes that a key can have, with what they allow. */
const SCOPES = {
	ingest: "post conversations and events",
	read: "read conversations, with secrets redacted",
	secrets: "read secrets in plain text",
	metrics: "read /metrics",
	keys: "make and revoke keys",
	erase: "erase conversations",
} as const;
type Scope = keyof typeof SCOPES;
const SCOPE_NAMES: readonly Scope[] = ["ingest", "read", "secrets", "metrics", "keys", "erase"];

/** How long a key can live, in days. */
const LIVES: ReadonlyMap<string, string> = new Map([
	["1", "a day"],
	["30", "30 days"],
	["365", "a year"],
	["", "for ever"],
]);
const DAY = 86_400_000;

interface KeysProps {
	/** Scopes of the caller, who can give away no others. */
	readonly scopes: readonly string[];
	/** Owner of the caller; empty for none. */
	readonly owner: string;
}

/** The access keys: who has which, and how to make and to revoke one. */
export default function Keys({ scopes, owner }: KeysProps) {
	const keys = useSignal<readonly AccessKey[]>([]);
	const problem = useSignal<Problem | undefined>(undefined);
	const revoking = useSignal<string | undefined>(undefined);
	const load = (): void => {
		client.listAccessKeys({}).then(
			({ accessKeys }) => {
				keys.value = accessKeys;
				problem.value = undefined;
			},
			(error: unknown) => {
				problem.value = problemOf(error);
			},
		);
	};
	useEffect(load, []);
	return (
		<section class="card" aria-labelledby="keys-title">
			<h2 id="keys-title">Access keys</h2>
			{problem.value !== undefined && <ProblemLine problem={problem.value} retry={load} />}
			<div class="scroll" role="region" aria-label="Access keys" tabIndex={0}>
				<table class="wide">
					<thead>
						<tr>
							{["Name", "Scopes", "Made", "Ends", "Last used", ""].map((title) => (
								<th key={title} scope="col">
									{title === "" ? <span class="visually-hidden">Action</span> : title}
								</th>
							))}
						</tr>
					</thead>
					<tbody>
						{keys.value.map((key) => (
							<Line
								key={key.name}
								of={key}
								revoke={() => {
									revoking.value = key.name;
								}}
							/>
						))}
					</tbody>
				</table>
			</div>
			{revoking.value !== undefined && (
				<RevokeDialog
					name={revoking.value}
					onClose={() => {
						revoking.value = undefined;
						load();
					}}
				/>
			)}
			<NewKey scopes={SCOPE_NAMES.filter((name) => scopes.includes(name))} owner={owner} onMade={load} />
		</section>
	);
}

function Line({ of, revoke }: { readonly of: AccessKey; readonly revoke: () => void }) {
	const { name, scopes, owner, createdAt, createdBy, expiresAt, revokedAt, lastUsedAt, configured } = of;
	const hasExpired = expiresAt !== undefined && dateOf(expiresAt).getTime() <= now.value;
	return (
		<tr>
			<th scope="row">
				{name} {owner !== "" && <span class="tag">{owner}</span>}
			</th>
			<td>{scopes.join(", ")}</td>
			<td>
				{configured ? (
					<span class="muted">in the configuration</span>
				) : (
					<>
						<Ago time={createdAt} /> <span class="muted">by {createdBy}</span>
					</>
				)}
			</td>
			<td>
				{revokedAt !== undefined ? (
					<span class="error">✕ revoked</span>
				) : hasExpired ? (
					<span class="error">✕ expired</span>
				) : expiresAt === undefined ? (
					<span class="muted">never</span>
				) : (
					<time dateTime={dateOf(expiresAt).toISOString()}>{exactTime(dateOf(expiresAt))}</time>
				)}
			</td>
			<td>{configured ? <span class="muted">not known</span> : <Ago time={lastUsedAt} />}</td>
			<td>
				{!configured && revokedAt === undefined && (
					<button type="button" aria-label={`Revoke ${name}`} onClick={revoke}>
						Revoke…
					</button>
				)}
			</td>
		</tr>
	);
}

function RevokeDialog({ name, onClose }: { readonly name: string; readonly onClose: () => void }) {
	const dialog = useRef<HTMLDialogElement>(null);
	const problem = useSignal("");
	useEffect(() => dialog.current?.showModal(), []);
	const revoke = (): void => {
		client.revokeAccessKey({ name }).then(
			() => dialog.current?.close(),
			(error: unknown) => {
				problem.value = problemOf(error).text;
			},
		);
	};
	return (
		<dialog ref={dialog} aria-labelledby="revoke-title" onClose={onClose}>
			<h2 id="revoke-title">Revoke the key {name} for good</h2>
			<p>Requests with it are refused within seconds, and open watches end. It cannot be given back.</p>
			{problem.value !== "" && (
				<p class="problem-text" role="alert">
					{problem.value}
				</p>
			)}
			<p class="row">
				<button type="button" class="danger" onClick={revoke}>
					Revoke
				</button>
				<button type="button" onClick={() => dialog.current?.close()}>
					Cancel
				</button>
			</p>
		</dialog>
	);
}

interface NewKeyProps {
	readonly scopes: readonly Scope[];
	readonly owner: string;
	readonly onMade: () => void;
}

/** Makes a key, and shows it once. */
function NewKey({ scopes, owner, onMade }: NewKeyProps) {
	const name = useSignal("");
	const chosen = useSignal<ReadonlySet<Scope>>(new Set(scopes.filter((scope) => scope === "read")));
	const keyOwner = useSignal("");
	const life = useSignal("30");
	const made = useSignal<{ readonly name: string; readonly key: string } | undefined>(undefined);
	const problem = useSignal("");
	const { said, copy } = useCopy();
	const make = (): void => {
		problem.value = "";
		const expiresAt =
			life.value === "" ? undefined : timestampFromDate(new Date(Date.now() + Number(life.value) * DAY));
		const request = {
			name: name.value.trim(),
			scopes: [...chosen.value],
			owner: keyOwner.value.trim(),
			...(expiresAt && { expiresAt }),
		};
		client.createAccessKey(request).then(
			({ key }) => {
				made.value = { name: request.name, key };
				name.value = "";
				onMade();
			},
			(error: unknown) => {
				problem.value = problemOf(error).text;
			},
		);
	};
	return (
		<form
			class="new-key"
			onSubmit={(event) => {
				event.preventDefault();
				make();
			}}
		>
			<h3>Make a key</h3>
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
				{owner === "" && (
					<label class="row">
						Owner
						<input
							type="text"
							autocomplete="off"
							placeholder="none: sees everything"
							value={keyOwner.value}
							onInput={(event) => {
								keyOwner.value = event.currentTarget.value;
							}}
						/>
					</label>
				)}
				<label class="row">
					Lives
					<select
						value={life.value}
						onChange={(event) => {
							life.value = event.currentTarget.value;
						}}
					>
						{[...LIVES].map(([days, words]) => (
							<option key={days} value={days}>
								{words}
							</option>
						))}
					</select>
				</label>
			</p>
			<fieldset>
				<legend class="small muted">Scopes</legend>
				{scopes.map((scope) => (
					<label key={scope} class="scope">
						<input
							type="checkbox"
							checked={chosen.value.has(scope)}
							onChange={(event) => {
								const next = new Set(chosen.value);
								if (event.currentTarget.checked) next.add(scope);
								else next.delete(scope);
								chosen.value = next;
							}}
						/>
						<code>{scope}</code> <span class="muted">{SCOPES[scope]}</span>
					</label>
				))}
			</fieldset>
			<p class="row">
				<button type="submit" class="primary" disabled={chosen.value.size === 0}>
					Make
				</button>
				{problem.value !== "" && (
					<span class="problem-text" role="alert">
						{problem.value}
					</span>
				)}
			</p>
			{made.value !== undefined && (
				<div class="made" role="status">
					<p>
						The key <strong>{made.value.name}</strong>. It is shown only now; the service does not keep it.
					</p>
					<pre>{made.value.key}</pre>
					<p class="row">
						<button type="button" onClick={() => copy(made.value?.key ?? "")}>
							Copy
						</button>
						<button
							type="button"
							onClick={() => {
								made.value = undefined;
							}}
						>
							Done
						</button>
						<span class="small muted">{said}</span>
					</p>
				</div>
			)}
		</form>
	);
}
