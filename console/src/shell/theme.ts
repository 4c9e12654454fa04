import { effect, signal } from "@preact/signals";

const STORAGE = "theme";
const THEMES = ["system", "light", "dark"] as const;
type Theme = (typeof THEMES)[number];

/** The theme that a person chose; `system` follows the system's setting. */
export const theme = signal<Theme>(THEMES.find((name) => name === localStorage.getItem(STORAGE)) ?? "system");

effect(() => {
	if (theme.value === "system") delete document.documentElement.dataset.theme;
	else document.documentElement.dataset.theme = theme.value;
	localStorage.setItem(STORAGE, theme.value);
});

/** Goes to the next theme. */
export function nextTheme(): void {
	theme.value = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length] ?? "system";
}
