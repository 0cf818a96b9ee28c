/** Lines over time by uPlot, in the colours of the theme, with the same numbers as a table for those who do not see them. */
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useCell } from "../core/cell";
import { instant, rate } from "../core/format";
import { theme } from "../core/theme";

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
  /** Milliseconds. */
  times: readonly number[];
  series: readonly Series[];
  height?: number;
  /** How a number is said. */
  say?: (value: number | null) => string;
}

function options(element: HTMLElement, props: Props, height: number): uPlot.Options {
  const style = getComputedStyle(element);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const say = props.say ?? rate;
  const axis: uPlot.Axis = { stroke: colour("--mute"), font: `11px ${style.fontFamily}`, grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  return {
    width: Math.max(200, element.clientWidth),
    height,
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { size: 6 } },
    scales: { x: { time: true }, y: { range: (_, __, max) => [0, Math.max(1, max * 1.1)] } },
    axes: [
      { ...axis, space: 80, incrs: [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600], size: 28, values: (_, ticks) => ticks.map((tick) => instant(tick * 1000).slice(11)) },
      { ...axis, size: 56, space: 36, values: (_, ticks) => ticks.map((tick) => say(tick)) },
    ],
    series: [{}, ...props.series.map((one): uPlot.Series => ({ label: one.name, stroke: colour(one.colour), width: 1.5, points: { show: false }, ...(one.dash ? { dash: one.dash } : {}) }))],
  };
}

export function Chart(props: Props) {
  const { label, times, series, height = 180, say = rate } = props;
  const element = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shown = useCell(theme);
  const data = [times.map((at) => at / 1000), ...series.map(({ values }) => [...values])] as uPlot.AlignedData;
  const latest = useRef(data);
  latest.current = data;

  useEffect(() => {
    const frame = element.current;
    if (frame === null) return;
    plot.current = new uPlot(options(frame, props, height), latest.current, frame);
    const watch = new ResizeObserver(() => plot.current?.setSize({ width: Math.max(200, frame.clientWidth), height }));
    watch.observe(frame);
    return () => {
      watch.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shown, height, series.map(({ name }) => name).join()]);

  useEffect(() => plot.current?.setData(data));

  return (
    <figure class="chart" aria-label={label}>
      <div ref={element} class="plot" aria-hidden="true" />
      <figcaption>
        {series.map((one) => (
          <span key={one.name} class="key">
            <svg width="18" height="8" aria-hidden="true">
              <line x1="0" x2="18" y1="4" y2="4" stroke={`var(${one.colour})`} stroke-width="2" stroke-dasharray={one.dash?.join(" ")} />
            </svg>
            {one.name} <strong>{say(one.values.at(-1) ?? null)}</strong>
          </span>
        ))}
      </figcaption>
      <Numbers label={label} times={times} series={series} say={say} />
    </figure>
  );
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
