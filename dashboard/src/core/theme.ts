/** The theme: that of the system unless the reader has picked one, which this browser remembers. */
import { cell } from "./cell";

export type Theme = "system" | "light" | "dark";

const key = "belfry-theme";
const themes: readonly Theme[] = ["system", "light", "dark"];

/** Storage may be forbidden by the browser's settings; then the choice lasts as long as the page. */
function remembered(): Theme {
  try {
    return themes.find((one) => one === localStorage.getItem(key)) ?? "system";
  } catch {
    return "system";
  }
}

const picked = cell<Theme>("system");
/** What is shown: changes with the system's, too. */
export const theme = cell<"light" | "dark">("light");
const dark = window.matchMedia("(prefers-color-scheme: dark)");

function show(): void {
  const now = picked.get() === "system" ? (dark.matches ? "dark" : "light") : picked.get();
  document.documentElement.dataset["theme"] = now;
  theme.set(now === "dark" ? "dark" : "light");
}

export { picked as pickedTheme };

export function pickTheme(one: Theme): void {
  picked.set(one);
  try {
    localStorage.setItem(key, one);
  } catch {
    // See `remembered`.
  }
  show();
}

export function startTheme(): void {
  picked.set(remembered());
  dark.addEventListener("change", show);
  show();
}
