/** Numbers, times and sizes as text, in English whatever the browser's language is, since all other words are. */

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** 1234567 as `1,234,567`. */
export function count(number: number): string {
  return grouped.format(number);
}

/** `1 lane`, `2 lanes`. */
export function plural(number: number, one: string, many = `${one}s`): string {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** A rate in three digits or so: `0.3`, `47`, `12,400`. */
export function rate(perSecond: number | null): string {
  if (perSecond === null) return "–";
  if (perSecond > 0 && perSecond < 10) return perSecond.toFixed(1);
  return count(perSecond < 1000 ? perSecond : Number(perSecond.toPrecision(3)));
}

/** Milliseconds of an answer: `0.4 ms`, `35 ms`, `1.2 s`. */
export function latency(milliseconds: number | null): string {
  if (milliseconds === null) return "–";
  if (milliseconds < 10) return `${milliseconds.toFixed(1)} ms`;
  return milliseconds < 1000 ? `${Math.round(milliseconds)} ms` : `${(milliseconds / 1000).toFixed(1)} s`;
}

const spans: [number, string][] = [
  [86_400, "d"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
];

/** A span in its two largest units: `34 s`, `3 min 5 s`, `2 d 4 h`. */
export function duration(seconds: number): string {
  let rest = Math.max(0, Math.round(seconds));
  const parts: string[] = [];
  for (const [size, unit] of spans) {
    const number = Math.floor(rest / size);
    rest -= number * size;
    if (number > 0) parts.push(`${number} ${unit}`);
    else if (parts.length > 0) break;
    if (parts.length === 2) break;
  }
  return parts.length === 0 ? "0 s" : parts.join(" ");
}

/** `3 min ago`, `in 34 s`, `just now`: with one unit from ten minutes on, as ages are read at a glance. */
export function age(instant: string | number, now: number): string {
  const seconds = (now - (typeof instant === "number" ? instant : Date.parse(instant))) / 1000;
  const size = Math.abs(seconds);
  if (size < 1.5) return "just now";
  const text = size < 600 ? duration(size) : (duration(size).match(/^\d+ \w+/)?.[0] ?? "");
  return seconds >= 0 ? `${text} ago` : `in ${text}`;
}

/** An instant in the browser's time zone, to the second: `2026-11-29 08:30:00`. */
export function instant(at: string | number): string {
  const date = new Date(at);
  const two = (number: number) => String(number).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

const units = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(number: number): string {
  let size = Math.abs(number);
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  const text = unit === 0 || size >= 100 ? size.toFixed(0) : size.toFixed(1);
  return `${number < 0 ? "−" : ""}${text} ${units[unit] ?? ""}`;
}

/** A part of a whole in per cent, never rounded to 0 or 100 unless it is: `<0.1 %`, `99.9 %`. */
export function percent(part: number, whole: number): string {
  if (whole === 0 || part === 0) return "0 %";
  if (part >= whole) return "100 %";
  const value = (part * 100) / whole;
  return value < 0.1 ? "<0.1 %" : `${Math.min(99.9, value).toFixed(1)} %`;
}

/** Words of the engine as a sentence: with a capital and a full stop. */
export function sentence(words: string): string {
  const text = words.trim();
  return text === "" ? "" : `${text[0]?.toUpperCase() ?? ""}${text.slice(1)}${/[.!?…]$/.test(text) ? "" : "."}`;
}

/** A state as words: `in_doubt` as `in doubt`. */
export function words(name: string): string {
  return name.replaceAll("_", " ");
}
