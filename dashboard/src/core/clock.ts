/**
 * The engine's clock, by which ages and times to come are told, so that a wrong clock of the browser shows no wrong age. It is known
 * from the `Date` of answers (RFC 9110, 6.6.1), which has whole seconds, so a difference below two seconds is taken for none.
 */
import { cell, useCell } from "./cell";

let ahead = 0;
/** The engine's time in milliseconds, at most a second old while the page is seen. */
const tick = cell(Date.now());

export function now(): number {
  return Date.now() + ahead;
}

/** Takes the `Date` of an answer that has just come. */
export function heardDate(header: string | null): void {
  const told = header === null ? NaN : Date.parse(header);
  if (Number.isNaN(told)) return;
  const difference = told + 500 - Date.now();
  ahead = Math.abs(difference) < 2000 ? 0 : difference;
}

/** The engine's time, for components that show an age: they are drawn anew each second while the page is seen. */
export function useNow(): number {
  return useCell(tick);
}

setInterval(() => {
  if (!document.hidden) tick.set(now());
}, 1000);
document.addEventListener("visibilitychange", () => tick.set(now()));
