import { signal } from "@preact/signals";
import { addressOf, go, path, query } from "../../shell/route.ts";

/** Views that a person named, in this browser: parameters of the address by name. */
const STORAGE = "saved-views";
const views = signal<Readonly<Record<string, string>>>(read());

function read(): Record<string, string> {
	try {
		const stored: unknown = JSON.parse(localStorage.getItem(STORAGE) ?? "{}");
		if (typeof stored !== "object" || stored === null) return {};
		return Object.fromEntries(Object.entries(stored).filter(([, value]) => typeof value === "string"));
	} catch {
		return {};
	}
}

function keep(next: Readonly<Record<string, string>>): void {
	views.value = next;
	localStorage.setItem(STORAGE, JSON.stringify(next));
}

/** Opens a named view, names the present one, or forgets a name. */
export function SavedViews() {
	const present = query.value.toString();
	const name = Object.entries(views.value).find(([, parameters]) => parameters === present)?.[0];
	return (
		<select
			aria-label="Saved views"
			value={name ?? ""}
			onChange={(event) => {
				const { value } = event.currentTarget;
				if (value === "+") {
					const given = prompt("Name of this view")?.trim();
					if (given) keep({ ...views.value, [given]: present });
				} else if (value === "-" && name !== undefined) {
					const { [name]: _, ...rest } = views.value;
					keep(rest);
				} else go(addressOf(path.value.slice(0, 1), new URLSearchParams(views.value[value] ?? "")));
				event.currentTarget.value = name ?? "";
			}}
		>
			<option value="">View</option>
			{Object.keys(views.value).map((view) => (
				<option key={view} value={view}>
					{view}
				</option>
			))}
			<option value="+">Save this view…</option>
			{name !== undefined && <option value="-">Forget “{name}”</option>}
		</select>
	);
}
