/**
 * Lines over time, drawn as SVG, so that they have the colours of the theme by the style. The same numbers stand below as a table, for
 * those who do not see the lines.
 */
import { useEffect, useRef, useState } from "preact/hooks";
import { instant, rate } from "../core/format";
import { numberTicks, timeTicks } from "../core/ticks";

export interface Series {
  name: string;
  /** A custom property of the style, as `--ok`. */
  colour: string;
  /** A line of dashes tells two lines apart without their colours. */
  dash?: number[];
  values: readonly (number | null)[];
}

interface Props {
  label: string;
  /** Milliseconds, ascending. */
  times: readonly number[];
  series: readonly Series[];
  /** How a number is said. */
  say?: (value: number | null) => string;
}

const height = 180;
/** Room for the numbers at the left and the times below. */
const left = 56;
const below = 22;
const above = 8;

export function Chart({ label, times, series, say = rate }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  /** The point that the pointer is over; else the last one is told. */
  const [pointed, setPointed] = useState<number | null>(null);
  useEffect(() => {
    if (frame.current === null) return;
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry?.contentRect.width ?? 0)));
    watch.observe(frame.current);
    return () => watch.disconnect();
  }, []);
  const told = pointed !== null && pointed < times.length ? pointed : times.length - 1;
  return (
    <figure class="chart" aria-label={label}>
      <div ref={frame} class="plot" aria-hidden="true">
        {width > 0 && times.length > 1 && <Plot width={width} times={times} series={series} say={say} pointed={pointed} point={setPointed} />}
      </div>
      <figcaption>
        {series.map((one) => (
          <span key={one.name} class="key">
            <svg width="18" height="8" aria-hidden="true">
              <line x1="0" x2="18" y1="4" y2="4" stroke={`var(${one.colour})`} stroke-width="2" stroke-dasharray={one.dash?.join(" ")} />
            </svg>
            {one.name} <strong>{say(one.values[told] ?? null)}</strong>
          </span>
        ))}
        {pointed !== null && <span class="mute">at {instant(times[told] ?? 0).slice(11)}</span>}
      </figcaption>
      <Numbers label={label} times={times} series={series} say={say} />
    </figure>
  );
}

interface PlotProps extends Required<Pick<Props, "times" | "series" | "say">> {
  width: number;
  pointed: number | null;
  point(index: number | null): void;
}

function Plot({ width, times, series, say, pointed, point }: PlotProps) {
  const from = times[0] ?? 0;
  const to = times.at(-1) ?? 1;
  const most = Math.max(...series.flatMap(({ values }) => values.map((value) => value ?? 0)));
  const rows = numberTicks(most, 4);
  const top = rows.at(-1) ?? 1;
  const x = (at: number) => left + ((at - from) / Math.max(1, to - from)) * (width - left - 6);
  const y = (value: number) => above + (1 - value / top) * (height - above - below);
  const nearest = (event: PointerEvent & { currentTarget: SVGSVGElement }) => {
    const at = from + ((event.clientX - event.currentTarget.getBoundingClientRect().left - left) / (width - left - 6)) * (to - from);
    let best = 0;
    for (const [index, time] of times.entries()) if (Math.abs(time - at) < Math.abs((times[best] ?? 0) - at)) best = index;
    point(best);
  };
  return (
    <svg width={width} height={height} onPointerMove={nearest} onPointerLeave={() => point(null)}>
      {rows.map((value) => (
        <g key={value}>
          <line class="grid" x1={left} x2={width} y1={y(value)} y2={y(value)} />
          <text x={left - 8} y={y(value) + 4} text-anchor="end">
            {say(value)}
          </text>
        </g>
      ))}
      {timeTicks(from, to, Math.max(2, Math.floor((width - left) / 90))).map((at) => (
        <g key={at}>
          <line class="grid" x1={x(at)} x2={x(at)} y1={above} y2={height - below} />
          <text x={x(at)} y={height - 6} text-anchor="middle">
            {instant(at).slice(11)}
          </text>
        </g>
      ))}
      {series.map((one) => (
        <path key={one.name} d={lineOf(one.values, (index) => x(times[index] ?? 0), y)} fill="none" stroke={`var(${one.colour})`} stroke-width="1.500" stroke-linejoin="round" stroke-dasharray={one.dash?.join(" ")} />
      ))}
      {pointed !== null && <line class="pointed" x1={x(times[pointed] ?? 0)} x2={x(times[pointed] ?? 0)} y1={above} y2={height - below} />}
    </svg>
  );
}

/** A line by all values; where one is missing it has a gap. */
function lineOf(values: readonly (number | null)[], x: (index: number) => number, y: (value: number) => number): string {
  let pen = "M";
  return values
    .map((value, index) => {
      if (value === null) {
        pen = "M";
        return "";
      }
      const drawn = `${pen}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = "L";
      return drawn;
    })
    .join("");
}

/** The last ten of at most, at equal distances over what is drawn. */
function Numbers({ label, times, series, say }: { label: string; times: readonly number[]; series: readonly Series[]; say: (value: number | null) => string }) {
  const stride = Math.max(1, Math.floor(times.length / 10));
  const picked = times.map((_, index) => index).filter((index) => (times.length - 1 - index) % stride === 0);
  return (
    <details class="numbers">
      <summary>As a table</summary>
      <div class="table" role="group" aria-label={label} tabIndex={0}>
        <table>
          <caption class="hidden">{label}</caption>
          <thead>
            <tr>
              <th scope="col">Time</th>
              {series.map(({ name }) => (
                <th key={name} scope="col" class="number">
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {picked.slice(-10).map((index) => (
              <tr key={index}>
                <td>{instant(times[index] ?? 0).slice(11)}</td>
                {series.map((one) => (
                  <td key={one.name} class="number">
                    {say(one.values[index] ?? null)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}
