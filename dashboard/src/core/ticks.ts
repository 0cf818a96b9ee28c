/** Where the lines of a chart's grid stand: at round numbers and round times. */

/** About `wanted` steps from 0 to above `most`, each 1, 2 or 5 times a power of ten. */
export function numberTicks(most: number, wanted: number): number[] {
  const rough = Math.max(most, 1) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough) ?? rough;
  const ticks: number[] = [];
  for (let index = 0; index * step < Math.max(most, 1) + step; index += 1) ticks.push(index * step);
  return ticks;
}

const timeSteps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600].map((seconds) => seconds * 1000);

/** The round times between two, in milliseconds, at most `wanted` of them. */
export function timeTicks(from: number, to: number, wanted: number): number[] {
  const step = timeSteps.find((size) => (to - from) / size <= wanted) ?? (to - from) / wanted;
  const ticks: number[] = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) ticks.push(at);
  return ticks;
}
