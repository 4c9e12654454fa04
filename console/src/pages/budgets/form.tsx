import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { type Budget, BudgetPeriod } from "../../../../gen/conversations/v1/budget_service_pb.js";
import type { ConversationFilter } from "../../../../gen/conversations/v1/conversation_service_pb.js";
import { CheckFields, ChoiceField, Refusal, TextField } from "../../parts/fields.tsx";
import { FilterError, filterText, parsedFilter } from "../../parts/filter-text.ts";
import { useCaller, useScope } from "../../service/caller.ts";
import { problemOf } from "../../service/service.ts";
import { addressOf, go } from "../../shell/route.ts";
import { client } from "./client.ts";

/** What a budget can limit, by the fields of the API. */
const LIMITS = {
	amount: "cost",
	tokens: "tokens",
	silent_minutes: "minutes of silence",
	waiting_minutes: "minutes of waiting",
	gap_minutes: "minutes of a gap",
	stalled_events: "events without a new leaf",
	stuck: "being stuck",
} as const;
type Limit = keyof typeof LIMITS;
const isLimit = (name: string): name is Limit => Object.hasOwn(LIMITS, name);
const LIMIT_NAMES: ReadonlyMap<string, string> = new Map(Object.entries(LIMITS));
const PERIODS: ReadonlyMap<string, string> = new Map(
	(["DAY", "WEEK", "MONTH", "CONVERSATION"] as const).map((name) => [
		String(BudgetPeriod[name]),
		name === "CONVERSATION" ? "the life of a conversation" : `a ${name.toLowerCase()}`,
	]),
);
/** The fields that the form sets beside the limit. */
const FIELDS = ["period", "time_zone", "filter", "model", "usage_id", "thresholds", "each_conversation", "pause"];

interface Settings {
	readonly amount?: number;
	readonly tokens?: bigint;
	readonly silentMinutes?: number;
	readonly waitingMinutes?: number;
	readonly gapMinutes?: number;
	readonly stalledEvents?: bigint;
	readonly stuck?: boolean;
	readonly period: BudgetPeriod;
	readonly timeZone: string;
	readonly filter: ConversationFilter | undefined;
	readonly model: string;
	readonly usageId: string;
	readonly thresholds: number[];
	readonly eachConversation: boolean;
	readonly pause: boolean;
}

/** What rules without an amount do not have. */
const OF_RULES = {
	...{ period: BudgetPeriod.UNSPECIFIED, timeZone: "", model: "", usageId: "", thresholds: [] },
	...{ eachConversation: false, pause: false },
};

/** Creates a budget. */
export function NewBudget({ onMade }: { readonly onMade: () => void }) {
	const caller = useCaller();
	const name = useSignal("");
	const owner = useSignal("");
	const made = useSignal(0);
	const create = async (settings: Settings): Promise<void> => {
		const named = { name: name.value.trim(), owner: owner.value.trim() };
		const { budget } = await client.createBudget({ ...named, ...settings });
		go(addressOfBudget({ name: named.name, owner: budget?.owner ?? "" }));
		name.value = "";
		made.value += 1;
		onMade();
	};
	return (
		<section class="card" aria-labelledby="new-budget">
			<h2 id="new-budget">New budget</h2>
			<SettingsForm key={made.value} action="Create" save={create}>
				<TextField label="Name" text={name} required />
				{caller?.owner === "" && <TextField label="Owner" text={owner} placeholder="none: of all conversations" />}
			</SettingsForm>
		</section>
	);
}

/** Changes the settings of a budget. */
export function EditBudget({ budget, onSaved }: { readonly budget: Budget; readonly onSaved: () => void }) {
	const { name, owner } = budget;
	return (
		<SettingsForm
			action="Save"
			present={budget}
			save={async (settings, limit) => {
				await client.updateBudget({ name, owner, ...settings, updateMask: { paths: [limit, ...FIELDS] } });
				onSaved();
			}}
		/>
	);
}

interface SettingsFormProps {
	/** Words of the button. */
	readonly action: string;
	/** What is set at first. Default: what a new budget has. */
	readonly present?: Budget;
	readonly save: (settings: Settings, limit: Limit) => Promise<void>;
	/** Fields before those of the settings. */
	readonly children?: ComponentChildren;
}

function SettingsForm({ action, present, save, children }: SettingsFormProps) {
	const mayPause = useScope("pause");
	const [presentLimit, presentValue] = limitOf(present);
	const limit = useSignal<string>(presentLimit);
	const value = useSignal(presentValue);
	const period = useSignal(String(present?.period ?? BudgetPeriod.MONTH));
	const timeZone = useSignal(present?.timeZone ?? "");
	const filter = useSignal(filterText(present?.filter));
	const model = useSignal(present?.model ?? "");
	const usageId = useSignal(present?.usageId ?? "");
	const thresholds = useSignal(present?.thresholds.join(", ") ?? "");
	const more = useSignal<ReadonlySet<string>>(
		new Set([...(present?.eachConversation ? ["each"] : []), ...(present?.pause ? ["pause"] : [])]),
	);
	const problem = useSignal("");
	const isRule = limit.value !== "amount" && limit.value !== "tokens";
	const submit = async (): Promise<void> => {
		problem.value = "";
		if (!isLimit(limit.value)) return;
		try {
			await save(
				{
					...limited(limit.value, value.value),
					filter: parsedFilter(filter.value),
					...(isRule
						? OF_RULES
						: {
								period: Number(period.value),
								timeZone: timeZone.value.trim(),
								model: model.value.trim(),
								usageId: usageId.value.trim(),
								thresholds: thresholds.value.split(",").flatMap((part) => (part.trim() === "" ? [] : Number(part))),
								eachConversation: more.value.has("each"),
								pause: more.value.has("pause"),
							}),
				},
				limit.value,
			);
		} catch (error) {
			problem.value = error instanceof FilterError ? error.message : problemOf(error).text;
		}
	};
	const choices = new Map([["each", "each conversation has the amount for itself"]]);
	if (mayPause || present?.pause === true) choices.set("pause", "conversations are paused when all is spent");
	return (
		<form
			onSubmit={(event) => {
				event.preventDefault();
				void submit();
			}}
		>
			<p class="row">
				{children}
				<ChoiceField label="Limit of" chosen={limit} options={LIMIT_NAMES} />
				{limit.value !== "stuck" && (
					<TextField label="Value" text={value} required inputMode="numeric" pattern="[0-9]+([.][0-9]+)?" />
				)}
				{!isRule && <ChoiceField label="Period" chosen={period} options={PERIODS} />}
				{!isRule && <TextField label="Time zone" text={timeZone} placeholder="UTC" />}
				<TextField label="Only conversations with" text={filter} placeholder={'{"tags": {"team": "a"}}'} />
				{!isRule && <TextField label="Only the model" text={model} placeholder="all" />}
				{!isRule && <TextField label="Only the usage id" text={usageId} placeholder="all" />}
				{!isRule && <TextField label="Told at" text={thresholds} placeholder="0.5, 0.8, 1" pattern="[0-9., ]*" />}
			</p>
			{!isRule && <CheckFields legend="Also" names={choices} chosen={more} />}
			<p class="row">
				<button type="submit" class="primary">
					{action}
				</button>
				<Refusal text={problem.value} />
			</p>
		</form>
	);
}

/** Returns what a budget limits, and to which value. */
function limitOf(budget: Budget | undefined): readonly [Limit, string] {
	const { amount, tokens, silentMinutes, waitingMinutes, gapMinutes, stalledEvents, stuck } = budget ?? {};
	const values: Readonly<Record<Limit, number | bigint | boolean | undefined>> = {
		...{ amount, tokens, stuck, silent_minutes: silentMinutes, waiting_minutes: waitingMinutes },
		...{ gap_minutes: gapMinutes, stalled_events: stalledEvents },
	};
	const found = Object.keys(values).find((name) => isLimit(name) && values[name] !== undefined);
	if (found === undefined || !isLimit(found)) return ["amount", ""];
	return [found, found === "stuck" ? "" : String(values[found])];
}

/** Returns the field of a limit. */
function limited(limit: Limit, text: string) {
	switch (limit) {
		case "amount":
			return { amount: Number(text) };
		case "tokens":
			return { tokens: whole(text) };
		case "silent_minutes":
			return { silentMinutes: Number(text) };
		case "waiting_minutes":
			return { waitingMinutes: Number(text) };
		case "gap_minutes":
			return { gapMinutes: Number(text) };
		case "stalled_events":
			return { stalledEvents: whole(text) };
		case "stuck":
			return { stuck: true };
	}
}

/** Returns a whole number; a fraction is cut. */
function whole(text: string): bigint {
	return BigInt(Math.trunc(Number(text)));
}

/** Returns the address of the page with a budget. */
export function addressOfBudget({ name, owner }: { readonly name: string; readonly owner: string }): string {
	return addressOf(["budgets"], { budget: name, ...(owner === "" ? {} : { owner }) });
}
