import { type Signal, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import type { ConversationFilter } from "../../../../gen/conversations/v1/conversation_service_pb.js";
import type { Endpoint } from "../../../../gen/conversations/v1/forwarding_service_pb.js";
import { CheckFields, ChoiceField, Refusal, ShownOnce, TextField } from "../../parts/fields.tsx";
import { FilterError, filterText, parsedFilter } from "../../parts/filter-text.ts";
import { useCaller } from "../../service/caller.ts";
import { problemOf } from "../../service/service.ts";
import { addressOf, go } from "../../shell/route.ts";
import { client } from "./client.ts";

const CHANGES: ReadonlyMap<string, string> = new Map(
	[
		...["FINISHED", "FAILED", "STUCK", "WAITING", "STARTED", "RUNNING", "PAUSED", "RESUMED", "DELETED", "UPDATED"],
		...["ERASED", "GAP", "BUDGET", "SILENT", "SCORED"],
	].map((name) => [name, ""]),
);
const FORMS: ReadonlyMap<string, string> = new Map(["plain", "cloudevents", "chat"].map((name) => [name, name]));
const INCLUDES: ReadonlyMap<string, string> = new Map([
	["record", "the whole record"],
	["messages", "its last messages"],
]);
/** Fields that {@link SettingsForm} sets. */
const FIELDS = ["url", "changes", "filter", "form", "include"];

interface Settings {
	readonly url: string;
	readonly changes: string[];
	readonly filter: ConversationFilter | undefined;
	readonly form: string;
	readonly include: string[];
}

/** Creates an endpoint, and shows its secret once. */
export function NewEndpoint({ onMade }: { readonly onMade: () => void }) {
	const caller = useCaller();
	const name = useSignal("");
	const owner = useSignal("");
	const secret = useSignal("");
	const made = useSignal(0);
	const create = async (settings: Settings): Promise<void> => {
		const named = { name: name.value.trim(), owner: owner.value.trim() };
		const response = await client.createEndpoint({ ...named, ...settings });
		secret.value = response.secret;
		go(addressOfEndpoint({ name: named.name, owner: response.endpoint?.owner ?? "" }));
		name.value = "";
		made.value += 1;
		onMade();
	};
	return (
		<section class="card" aria-labelledby="new-endpoint">
			<h2 id="new-endpoint">New endpoint</h2>
			<SettingsForm key={made.value} action="Create" save={create}>
				<TextField label="Name" text={name} required />
				{caller?.owner === "" && <TextField label="Owner" text={owner} placeholder="none: told of everything" />}
			</SettingsForm>
			<Secret shown={secret} />
		</section>
	);
}

/** Changes the settings of an endpoint. */
export function EditEndpoint({ endpoint, onSaved }: { readonly endpoint: Endpoint; readonly onSaved: () => void }) {
	const { name, owner } = endpoint;
	return (
		<SettingsForm
			action="Save"
			present={endpoint}
			save={async (settings) => {
				await client.updateEndpoint({ name, owner, ...settings, updateMask: { paths: FIELDS } });
				onSaved();
			}}
		/>
	);
}

interface SettingsFormProps {
	/** Words of the button. */
	readonly action: string;
	/** What is set at first. Default: what a new endpoint has. */
	readonly present?: Endpoint;
	readonly save: (settings: Settings) => Promise<void>;
	/** Fields before those of the settings. */
	readonly children?: ComponentChildren;
}

function SettingsForm({ action, present, save, children }: SettingsFormProps) {
	const url = useSignal(present?.url ?? "");
	const form = useSignal(present?.form ?? "plain");
	const filter = useSignal(filterText(present?.filter));
	const changes = useSignal<ReadonlySet<string>>(
		new Set(present?.changes ?? ["FINISHED", "FAILED", "STUCK", "WAITING"]),
	);
	const include = useSignal<ReadonlySet<string>>(new Set(present?.include));
	const problem = useSignal("");
	const submit = async (): Promise<void> => {
		problem.value = "";
		try {
			await save({
				url: url.value.trim(),
				changes: [...changes.value],
				filter: parsedFilter(filter.value),
				form: form.value,
				include: [...include.value],
			});
		} catch (error) {
			problem.value = error instanceof FilterError ? error.message : problemOf(error).text;
		}
	};
	return (
		<form
			onSubmit={(event) => {
				event.preventDefault();
				void submit();
			}}
		>
			<p class="row">
				{children}
				<TextField label="Address" text={url} required placeholder="https://" />
				<ChoiceField label="Form" chosen={form} options={FORMS} />
				<TextField label="Only conversations with" text={filter} placeholder={'{"agentKind": "Agent"}'} />
			</p>
			<CheckFields legend="Told of" names={CHANGES} chosen={changes} isWrapped />
			<CheckFields legend="Sent with the summary" names={INCLUDES} chosen={include} isWrapped />
			<p class="row">
				<button type="submit" class="primary" disabled={changes.value.size === 0}>
					{action}
				</button>
				<Refusal text={problem.value} />
			</p>
		</form>
	);
}

/** Shows the secret of an endpoint once, if there is one. */
export function Secret({ shown }: { readonly shown: Signal<string> }) {
	if (shown.value === "") return null;
	return (
		<ShownOnce
			text={shown.value}
			onDone={() => {
				shown.value = "";
			}}
		>
			The secret with which deliveries are signed. It is shown only now.
		</ShownOnce>
	);
}

/** Returns the address of the page with an endpoint. */
export function addressOfEndpoint({ name, owner }: { readonly name: string; readonly owner: string }): string {
	return addressOf(["forwarding"], { endpoint: name, ...(owner === "" ? {} : { owner }) });
}
