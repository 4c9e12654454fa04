import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { createClient } from "@connectrpc/connect";
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { type AccessKey, AccessKeyService } from "../../../../gen/conversations/v1/access_key_service_pb.js";
import { ColumnHeads } from "../../parts/column-heads.tsx";
import { CheckFields, ChoiceField, ConfirmDialog, Refusal, ShownOnce, TextField } from "../../parts/fields.tsx";
import { exactTime } from "../../parts/format.ts";
import { ProblemLine } from "../../parts/notice.tsx";
import { Ago, dateOf, now } from "../../parts/time.tsx";
import { type Problem, problemOf, transport } from "../../service/service.ts";

const client = createClient(AccessKeyService, transport);

/** What scopes allow. */
const SCOPES: ReadonlyMap<string, string> = new Map([
	["ingest", "post conversations and events"],
	["read", "read conversations, with secrets redacted"],
	["secrets", "read secrets in plain text"],
	["metrics", "read /metrics"],
	["keys", "make and revoke keys"],
	["erase", "erase conversations"],
	["forward", "manage endpoints and budgets"],
	["pause", "make budgets that pause conversations"],
	["score", "give scores"],
]);

/** How long a key can live, in days. */
const LIVES: ReadonlyMap<string, string> = new Map([
	["1", "a day"],
	["30", "30 days"],
	["365", "a year"],
	["", "for ever"],
]);
const DAY = 86_400_000;
const COLUMNS = ["Name", "Scopes", "Made", "Ends", "Last used", ""] as const;

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
					<ColumnHeads titles={COLUMNS} />
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
				<ConfirmDialog
					title={`Revoke the key ${revoking.value} for good`}
					action="Revoke"
					act={() => client.revokeAccessKey({ name: revoking.value ?? "" })}
					onClose={() => {
						revoking.value = undefined;
						load();
					}}
				>
					Requests with it are refused within seconds, and open watches end. It cannot be given back.
				</ConfirmDialog>
			)}
			<NewKey scopes={new Map(scopes.map((name) => [name, SCOPES.get(name) ?? ""]))} owner={owner} onMade={load} />
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

interface NewKeyProps {
	/** Scopes that the caller can give, with what they allow. */
	readonly scopes: ReadonlyMap<string, string>;
	readonly owner: string;
	readonly onMade: () => void;
}

/** Makes a key, and shows it once. */
function NewKey({ scopes, owner, onMade }: NewKeyProps) {
	const name = useSignal("");
	const chosen = useSignal<ReadonlySet<string>>(new Set(scopes.has("read") ? ["read"] : []));
	const keyOwner = useSignal("");
	const life = useSignal("30");
	const made = useSignal<{ readonly name: string; readonly key: string } | undefined>(undefined);
	const problem = useSignal("");
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
				<TextField label="Name" text={name} required />
				{owner === "" && <TextField label="Owner" text={keyOwner} placeholder="none: sees everything" />}
				<ChoiceField label="Lives" chosen={life} options={LIVES} />
			</p>
			<CheckFields legend="Scopes" names={scopes} chosen={chosen} />
			<p class="row">
				<button type="submit" class="primary" disabled={chosen.value.size === 0}>
					Make
				</button>
				<Refusal text={problem.value} />
			</p>
			{made.value !== undefined && (
				<ShownOnce
					text={made.value.key}
					onDone={() => {
						made.value = undefined;
					}}
				>
					The key <strong>{made.value.name}</strong>. It is shown only now; the service does not keep it.
				</ShownOnce>
			)}
		</form>
	);
}
