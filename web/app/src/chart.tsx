// Charts over time, as SVG without a library.

import type { JSX } from "preact";
import { count, percent, seconds } from "./format";
import type { Sample } from "./state";
import type { Report, Shares } from "./types";

const WIDTH = 600, HEIGHT = 120;

interface Line { name: string; of: (sample: Sample, before: Sample | undefined) => number; cls: string; isArea?: boolean }

const LINES: Line[] = [
  { name: "slots", cls: "slots", of: (it) => it.slots },
  { name: "running", cls: "running", isArea: true, of: (it) => it.running },
];
const READY: Line[] = [{ name: "tasks ready", cls: "ready", isArea: true, of: (it) => it.ready }];
const RATE: Line[] = [{
  name: "tasks ended per second", cls: "rate", isArea: true,
  of: (it, before) => (before && it.at > before.at ? Math.max(0, it.ended - before.ended) / (it.at - before.at) : 0),
}];

const Chart = ({ samples, lines, label }: { samples: Sample[]; lines: Line[]; label: string }): JSX.Element => {
  const first = samples[0]?.at ?? 0, last = samples[samples.length - 1]?.at ?? 1;
  const values = lines.map((line) => samples.map((it, at) => line.of(it, samples[at - 1])));
  const most = Math.max(1, ...values.flat());
  const x = (at: number): number => ((at - first) / Math.max(1, last - first)) * WIDTH;
  const y = (value: number): number => HEIGHT - (value / most) * (HEIGHT - 6);
  const path = (of: number[], isArea = false): string => {
    const points = samples.map((it, at) => `${x(it.at).toFixed(1)} ${y(of[at] ?? 0).toFixed(1)}`);
    return `M${points.join("L")}${isArea ? `L${WIDTH} ${HEIGHT}L0 ${HEIGHT}Z` : ""}`;
  };
  const now = lines.map((line, at) => `${line.name} ${count(values[at]?.[samples.length - 1] ?? 0)}`).join(", ");
  return (
    <figure class="chart">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={`${label}: ${now}`}>
        {lines.map((line, at) => <path class={`${line.cls} ${line.isArea ? "area" : "line"}`} d={path(values[at] ?? [], line.isArea)} />)}
      </svg>
      <figcaption>
        <span>{lines.map((line, at) => (
          <span class="entry"><span class={`key ${line.cls}`} aria-hidden="true" /> {line.name} {count(values[at]?.[samples.length - 1] ?? 0)}</span>
        ))}</span>
        <span>last {seconds(last - first)}, most {count(Math.max(0, ...values.flat()))}</span>
      </figcaption>
    </figure>
  );
};

/** Slots, running and ready tasks, and ended tasks, since the page was opened. */
export const Recent = ({ samples }: { samples: Sample[] }): JSX.Element => (
  <>
    <Chart samples={samples} lines={LINES} label="Slots" />
    <Chart samples={samples} lines={READY} label="Ready tasks" />
    <Chart samples={samples} lines={RATE} label="Rate" />
  </>
);

const CAUSES: [string, string][] = [
  ["working", "working"], ["lost", "lost: attempts that did not succeed"], ["fetching", "idle: inputs were being fetched"],
  ["starting", "idle: a ready task had not started"], ["elsewhere", "idle: tasks were ready on other nodes only"],
  ["nothing_ready", "idle: no task was ready"], ["unknown", "unknown: events are missing"],
];

const areas = (series: Shares[], slots: number): string[] => {
  const step = WIDTH / Math.max(1, series.length);
  const tops = series.map(() => HEIGHT);
  return CAUSES.map(([name]) => {
    const low = tops.slice();
    series.forEach((shares, at) => { tops[at] = (tops[at] ?? 0) - ((shares[name] ?? 0) / Math.max(1, slots)) * HEIGHT; });
    if (series.every((shares) => !shares[name])) return "";
    const edge = (of: number[], at: number): string => `${(at * step).toFixed(1)} ${of[at]?.toFixed(1)}L${((at + 1) * step).toFixed(1)} ${of[at]?.toFixed(1)}`;
    const upper = series.map((_, at) => edge(tops, at));
    const lower = series.map((_, at) => `${((at + 1) * step).toFixed(1)} ${low[at]?.toFixed(1)}L${(at * step).toFixed(1)} ${low[at]?.toFixed(1)}`).reverse();
    return `M${[...upper, ...lower].join("L")}Z`;
  });
};

/** The time of all slots by cause. */
export const Causes = ({ report }: { report: Report }): JSX.Element => {
  const { series, slots, seconds: sums, window_s } = report.causes;
  const whole = slots * window_s;
  return (
    <>
      <figure class="chart">
        <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label="Slot time by cause; the table below has the sums">
          {areas(series, slots).map((d, at) => d && <path class={`cause${at}`} d={d} />)}
        </svg>
        <figcaption><span>0 s</span><span>{seconds(window_s)}</span></figcaption>
      </figure>
      <div class="wide" tabIndex={0} role="region" aria-label="Slot time">
        <table>
          <thead><tr><th scope="col">cause</th><th scope="col" class="number">share</th><th scope="col" class="number">slot time</th></tr></thead>
          <tbody>
            {CAUSES.map(([name, word], at) => (sums[name] ?? 0) > 0 && (
              <tr>
                <td><span class={`key cause${at}`} aria-hidden="true" /> {word}</td>
                <td class="number">{percent(whole > 0 ? (sums[name] ?? 0) / whole : 0)}</td>
                <td class="number">{seconds(sums[name] ?? 0)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
};
