// The pages about one job and one task.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { Offers } from "./actions";
import { jobOffers } from "./changes";
import { Causes } from "./chart";
import { bytes, count, moment, percent, plain, seconds } from "./format";
import { Bar, Empty, Failed, Figures, State, Table, Warning, useAnswer, useLooks } from "./parts";
import { type Attempts, readRecord } from "./record";
import { Problem, ask, jobWord, overview } from "./state";
import { Timeline, WORDS } from "./timeline";
import type { Failure, Output, Progress, Report, TaskLine, TaskLines, TaskPage, Used } from "./types";

const LIVE_MS = 3000;
const TABS: [string, string][] = [
  ["", "Summary"], ["timeline", "Timeline"], ["kinds", "Kinds"], ["failures", "Failures"], ["data", "Data"], ["tasks", "Tasks"],
];

const isEnded = (state: string): boolean => !["running", "staged"].includes(state);

const address = (job: string, tab = ""): string => `#/jobs/${encodeURIComponent(job)}${tab && `/${tab}`}`;
const api = (job: string): string => `api/v1/jobs/${encodeURIComponent(job)}`;

export const JobPage = ({ job, tab }: { job: string; tab: string }): JSX.Element => {
  const line = overview.value?.jobs.find((it) => it.job === job);
  const isLive = !line || !isEnded(line.state);
  const { value: report, problem } = useAnswer<Report>(`${api(job)}/report`, LIVE_MS, isLive);
  // The last answer may be of the moment before the end.
  const state = line ? jobWord(line) : report?.state ?? "";
  return (
    <>
      <h1>{overview.value?.source === "records" ? "Run" : "Job"} {plain(job)} {plain(line?.name ?? report?.name ?? "")} {state && <State word={state} />}</h1>
      {line && <Offers offers={jobOffers(line)} />}
      <nav class="tabs" aria-label="Parts of the job">
        {TABS.map(([name, word]) => <a href={address(job, name)} aria-current={tab === name ? "page" : undefined}>{word}</a>)}
      </nav>
      {problem && <Failed problem={problem} />}
      {!report && !problem && <Empty>The nodes are asked for the events of the job.</Empty>}
      {report && report.missing.map((it) => <Warning>without the events of n{it.node}: {plain(it.why)}</Warning>)}
      {report?.thinned && <Warning>{plain(report.thinned)}</Warning>}
      {report && <Tab report={report} job={job} tab={tab} isLive={isLive} />}
    </>
  );
};

const Tab = ({ report, job, tab, isLive }: { report: Report; job: string; tab: string; isLive: boolean }): JSX.Element => {
  switch (tab) {
    case "": return <Summary report={report} job={job} />;
    case "timeline": return <TimelineTab job={job} isLive={isLive} />;
    case "kinds": return <Kinds report={report} job={job} />;
    case "failures": return <Failures report={report} job={job} />;
    case "data": return <Data report={report} />;
    case "tasks": return <Tasks job={job} kinds={report.progress.map((it) => it.kind)} isLive={isLive} />;
    default: return <Warning>There is no such part. <a href={address(job)}>Summary</a></Warning>;
  }
};

/** The end of a job that runs, as a range. */
const ending = (eta: unknown): string => {
  const found = eta as Record<string, unknown> | string | undefined;
  if (found === undefined || typeof found === "string") return "-";
  const range = Object.values(found)[0];
  if (Array.isArray(range)) return `not known: no task of ${range.map((it) => `'${plain(String(it))}'`).join(", ")} has ended`;
  const figures = Object.values((range ?? {}) as Record<string, unknown>).filter((it): it is number => typeof it === "number");
  return figures.length >= 2 ? `in ${seconds(Math.min(...figures))} to ${seconds(Math.max(...figures))}` : "-";
};

const Summary = ({ report, job }: { report: Report; job: string }): JSX.Element => (
  <>
    <Figures items={[
      ["tasks", count(report.tasks.total)], ["done", count(report.tasks.done)],
      ["failed", report.tasks.failed ? <a href={address(job, "failures")} class="bad">✗ {count(report.tasks.failed)}</a> : "0"],
      ["skipped", count(report.tasks.skipped)], ["makespan", seconds(report.makespan_s)],
      ["slots", `${count(report.slots)} on ${report.nodes} nodes`], ["busy", percent(report.utilization)],
      ["moved", bytes(report.bytes_moved)], ["read locally", bytes(report.bytes_read_local)],
      ["tasks stolen", count(report.steals)], ["pushed", count(report.pushes)], ["policy", plain(report.policy) || "-"],
      ...(report.eta === undefined ? [] : [["ends", ending(report.eta)] as [string, ComponentChildren]]),
    ]} />
    <section aria-labelledby="h-kinds"><h2 id="h-kinds">Progress by kind</h2><ProgressTable rows={report.progress} job={job} /></section>
    <section aria-labelledby="h-causes"><h2 id="h-causes">Slot time by cause</h2><Causes report={report} /></section>
    <section aria-labelledby="h-nodes">
      <h2 id="h-nodes">Nodes</h2>
      <Table label="Nodes of the job" rows={report.per_node} columns={[
        { name: "node", cell: (it) => <a href={`#/nodes/${it.node}`}>n{it.node}</a>, key: (it) => it.node },
        { name: "slots", cell: (it) => count(it.slots), key: (it) => it.slots, isNumber: true },
        { name: "attempts", cell: (it) => count(it.attempts), key: (it) => it.attempts, isNumber: true },
        { name: "failed", cell: (it) => count(it.failed), key: (it) => it.failed, isNumber: true },
        { name: "busy", cell: (it) => percent(it.utilization), key: (it) => it.utilization, isNumber: true },
        { name: "moved here", cell: (it) => bytes(it.bytes_moved), key: (it) => it.bytes_moved, isNumber: true },
        { name: "read locally", cell: (it) => bytes(it.bytes_read_local), key: (it) => it.bytes_read_local, isNumber: true },
      ]} />
    </section>
  </>
);

const progressParts = (it: Progress): [string, number][] => [
  ["done", it.done], ["failed", it.failed], ["cancelled", it.cancelled], ["skipped", it.skipped], ["running", it.running],
  ["ready", it.ready], ["waiting", it.waiting],
];

const kindLink = (job: string, kind: string): JSX.Element => (
  <a href={`${address(job, "tasks")}?kind=${encodeURIComponent(kind)}`}>{plain(kind)}</a>
);

const ProgressTable = ({ rows, job }: { rows: Progress[]; job: string }): JSX.Element => (
  <Table label="Progress by kind" rows={rows} columns={[
    { name: "kind", cell: (it) => kindLink(job, it.kind), key: (it) => it.kind },
    { name: "progress", cell: (it) => <Bar parts={progressParts(it)} total={it.total} /> },
    { name: "tasks", cell: (it) => count(it.total), key: (it) => it.total, isNumber: true },
    { name: "waiting", cell: (it) => count(it.waiting), key: (it) => it.waiting, isNumber: true },
    { name: "ready", cell: (it) => count(it.ready), key: (it) => it.ready, isNumber: true },
    { name: "running", cell: (it) => count(it.running), key: (it) => it.running, isNumber: true },
    { name: "done", cell: (it) => count(it.done), key: (it) => it.done, isNumber: true },
    { name: "failed", cell: (it) => count(it.failed), key: (it) => it.failed, isNumber: true },
    { name: "skipped", cell: (it) => count(it.skipped), key: (it) => it.skipped, isNumber: true },
  ]} />
);

const KindUsage = ({ rows, job }: { rows: (Used & { kind: string })[]; job: string }): JSX.Element => (
  <>
    {rows.length > 0 && <h2>What commands used</h2>}
    {rows.length > 0 && <Table label="What commands used" rows={rows} columns={[
      { name: "kind", cell: (it) => kindLink(job, it.kind), key: (it) => it.kind },
      { name: "tasks", cell: (it) => count(it.tasks), key: (it) => it.tasks, isNumber: true },
      { name: "cpu time", cell: (it) => seconds(it.cpu_s), key: (it) => it.cpu_s, isNumber: true },
      { name: "cpu of slot time", cell: (it) => percent(it.cpu_share), key: (it) => it.cpu_share, isNumber: true },
      { name: "median memory", cell: (it) => bytes(it.memory_p50_bytes), key: (it) => it.memory_p50_bytes, isNumber: true },
      { name: "95 % at most", cell: (it) => bytes(it.memory_p95_bytes), key: (it) => it.memory_p95_bytes, isNumber: true },
      { name: "most memory", cell: (it) => bytes(it.memory_max_bytes), key: (it) => it.memory_max_bytes, isNumber: true },
    ]} />}
  </>
);

const Kinds = ({ report, job }: { report: Report; job: string }): JSX.Element => (
  <>
    <h2>Lengths</h2>
    {report.kinds.length === 0 && <Empty>No attempt has ended yet.</Empty>}
    <Table label="Kinds" rows={report.kinds} columns={[
      { name: "kind", cell: (it) => kindLink(job, it.kind), key: (it) => it.kind },
      { name: "attempts", cell: (it) => count(it.attempts), key: (it) => it.attempts, isNumber: true },
      { name: "failed", cell: (it) => count(it.failed), key: (it) => it.failed, isNumber: true },
      { name: "share of time", cell: (it) => percent(it.share), key: (it) => it.share, isNumber: true },
      { name: "mean", cell: (it) => seconds(it.ran.mean_s), key: (it) => it.ran.mean_s, isNumber: true },
      { name: "median", cell: (it) => seconds(it.ran.p50_s), key: (it) => it.ran.p50_s, isNumber: true },
      { name: "95 % at most", cell: (it) => seconds(it.ran.p95_s), key: (it) => it.ran.p95_s, isNumber: true },
      { name: "longest", cell: (it) => seconds(it.ran.max_s), key: (it) => it.ran.max_s, isNumber: true },
      { name: "median wait", cell: (it) => seconds(it.waited.p50_s), key: (it) => it.waited.p50_s, isNumber: true },
      { name: "moved", cell: (it) => bytes(it.bytes_moved), key: (it) => it.bytes_moved, isNumber: true },
      { name: "first start", cell: (it) => seconds(it.first_start_s), key: (it) => it.first_start_s, isNumber: true },
      { name: "last end", cell: (it) => seconds(it.last_end_s), key: (it) => it.last_end_s, isNumber: true },
    ]} />
    <KindUsage rows={report.kinds.flatMap((it) => (it.used ? [{ kind: it.kind, ...it.used }] : []))} job={job} />
    <h2>Slowest tasks</h2>
    <Table label="Slowest tasks" rows={report.slowest} columns={[
      { name: "task", cell: (it) => <a href={address(job, `tasks/${it.task}`)}>{plain(it.name)}</a>, key: (it) => it.name },
      { name: "kind", cell: (it) => plain(it.kind), key: (it) => it.kind },
      { name: "node", cell: (it) => `n${it.node}`, key: (it) => it.node },
      { name: "start", cell: (it) => seconds(it.start_s), key: (it) => it.start_s, isNumber: true },
      { name: "length", cell: (it) => seconds(it.ran_s), key: (it) => it.ran_s, isNumber: true },
      { name: "end", cell: (it) => <State word={it.end} /> },
    ]} />
  </>
);

const Group = ({ it, job }: { it: Failure; job: string }): JSX.Element => (
  <details class="panel">
    <summary>
      <span class="bad">✗ {it.tasks > 1 ? `${count(it.tasks)} alike` : "1 task"}</span>: exit code {it.exit_code}, kind '{plain(it.kind)}'
      {it.text && `: ${plain(it.text)}`}
    </summary>
    <p>on {it.nodes.map((node) => `n${node}`).join(", ") || "nodes that are not known"}{it.more_nodes ? " and others" : ""}</p>
    {it.examples.map((example) => (
      <>
        <p><a href={address(job, `tasks/${example.task}`)}>{plain(example.name || example.task)}</a> on n{example.node}: {plain(example.error)}</p>
        {example.stderr && <pre>{plain(example.stderr)}</pre>}
      </>
    ))}
    <p><a href={`${address(job, "tasks")}?state=failed&kind=${encodeURIComponent(it.kind)}`}>Failed tasks of this kind</a></p>
  </details>
);

const Failures = ({ report, job }: { report: Report; job: string }): JSX.Element => (
  <>
    <h2>Alike failures</h2>
    {report.failures.length === 0 && <Empty>No task has failed.</Empty>}
    {report.failures.map((it) => <Group it={it} job={job} />)}
    {report.more_failures > 0 && <p>and {count(report.more_failures)} more</p>}
    {report.failures.length > 0 && report.source === "cluster" && <p class="note"><code>starling job retry {job} --failed</code> runs failed tasks again.</p>}
  </>
);

const neighbours = (first: number, level: number): string => (level === 0 ? `n${first}` : `n${first}-n${first + 2 ** level - 1}`);

const Data = ({ report }: { report: Report }): JSX.Element => {
  const ends = (of: (it: Report["links"][0]) => number): number[] => [...new Set(report.links.map(of))].sort((a, b) => a - b);
  const from = ends((it) => it.from).slice(0, 32), to = ends((it) => it.to).slice(0, 32);
  const most = Math.max(1, ...report.links.map((it) => it.bytes));
  const name = (node: number): string => neighbours(node, report.link_level);
  if (report.links.length === 0) return <><h2>Data moved between nodes</h2><Empty>No object moved between nodes.</Empty></>;
  return (
    <>
      <h2>Data moved between nodes</h2>
      <div class="wide" tabIndex={0} role="region" aria-label="Bytes from node to node">
        <table class="matrix">
          <thead><tr><th scope="col">from \ to</th>{to.map((node) => <th scope="col">{name(node)}</th>)}</tr></thead>
          <tbody>{from.map((a) => (
            <tr><th scope="row">{name(a)}</th>{to.map((b) => {
              const sum = report.links.find((it) => it.from === a && it.to === b)?.bytes ?? 0;
              return <td class="number"><span class="heat" style={{ opacity: (sum / most) * 0.6 }} aria-hidden="true" /><span>{sum ? bytes(sum) : "·"}</span></td>;
            })}</tr>
          ))}</tbody>
        </table>
      </div>
      <h2>Links</h2>
      <Table label="Links" rows={report.links} initial={{ by: 3, isDown: true }} columns={[
        { name: "from", cell: (it) => name(it.from), key: (it) => it.from }, { name: "to", cell: (it) => name(it.to), key: (it) => it.to },
        { name: "objects", cell: (it) => count(it.objects), key: (it) => it.objects, isNumber: true },
        { name: "bytes", cell: (it) => bytes(it.bytes), key: (it) => it.bytes, isNumber: true },
        { name: "rate of a transfer", cell: (it) => it.took_us > 0 ? `${bytes(it.bytes / (it.took_us / 1e6))}/s` : "-", isNumber: true },
      ]} />
    </>
  );
};

const STATES = ["", "waiting", "ready", "running", "done", "failed", "cancelled", "skipped"];

const Tasks = ({ job, kinds, isLive }: { job: string; kinds: string[]; isLive: boolean }): JSX.Element => {
  const query = new URLSearchParams(location.hash.split("?")[1] ?? "");
  const state = useSignal(query.get("state") ?? ""), kind = useSignal(query.get("kind") ?? "");
  const name = useSignal(query.get("name") ?? ""), skip = useSignal(0);
  const asked = new URLSearchParams({ state: state.value, kind: kind.value, name: name.value, skip: String(skip.value) });
  const { value, problem } = useAnswer<TaskLines>(`${api(job)}/tasks?${asked}`, LIVE_MS, isLive);
  const set = (of: { value: string }) => (event: JSX.TargetedEvent<HTMLInputElement | HTMLSelectElement>): void => {
    of.value = event.currentTarget.value;
    skip.value = 0;
  };
  const shown = value?.tasks.length ?? 0;
  return (
    <>
      <form class="filter" onSubmit={(event) => event.preventDefault()}>
        <label>Name or id <input type="search" id="search" value={name.value} onInput={set(name)} /></label>
        <label>State <select value={state.value} onChange={set(state)}>{STATES.map((it) => <option value={it}>{it || "all"}</option>)}</select></label>
        <label>Kind <select value={kind.value} onChange={set(kind)}>{["", ...kinds].map((it) => <option value={it}>{it ? plain(it) : "all"}</option>)}</select></label>
      </form>
      {problem && <Failed problem={problem} />}
      {value && (
        <>
          <p role="status">{value.matching === 0 ? "No task is selected." : `Tasks ${count(value.skip + 1)} to ${count(value.skip + shown)} of ${count(value.matching)}`}</p>
          <Table label="Tasks" rows={value.tasks} columns={[
            { name: "task", cell: (it: TaskLine) => <a href={address(job, `tasks/${it.id}`)}>{plain(it.name) || it.id}</a> },
            { name: "id", cell: (it) => it.id }, { name: "kind", cell: (it) => plain(it.kind) },
            { name: "state", cell: (it) => <State word={it.state} /> },
            { name: "exit code", cell: (it) => it.state === "done" || it.state === "failed" ? it.exit_code : "-", isNumber: true },
            { name: "attempts", cell: (it) => it.attempts, isNumber: true },
            { name: "node", cell: (it) => it.node === undefined ? "-" : `n${it.node}` },
            { name: "start", cell: (it) => it.start_s === undefined ? "-" : seconds(it.start_s), isNumber: true },
            { name: "length", cell: (it) => it.ran_s === undefined ? "-" : seconds(it.ran_s), isNumber: true },
          ]} />
          <p>
            <button type="button" disabled={skip.value === 0} onClick={() => { skip.value = Math.max(0, skip.value - 100); }}>Earlier</button>{" "}
            <button type="button" disabled={value.skip + shown >= value.matching} onClick={() => { skip.value += 100; }}>Later</button>
          </p>
        </>
      )}
    </>
  );
};

/** The text about an attempt. */
const describe = async (data: Attempts, line: Timeline, x: number, y: number): Promise<{ text: string; id: string }> => {
  const { row, time, attempt } = line.under(x, y);
  const slot = data.rows[row];
  const place = `n${slot?.node} slot ${slot?.slot}, at ${seconds((time - data.begin) / 1e6)}`;
  if (attempt < 0) return { text: `${place}: idle`, id: "" };
  const id = data.idOf(attempt), name = plain(await data.nameOf(attempt)) || id;
  const again = (data.again[attempt] ?? 1) > 1 ? `, attempt ${data.again[attempt]}` : "";
  const kind = plain(data.meta.kinds[data.kind[attempt] ?? 0] ?? "");
  return {
    id,
    text: `${place}: ${name}, kind ${kind}, ${WORDS[data.outcome[attempt] ?? 0]} after ` +
      `${seconds((data.ran[attempt] ?? 0) / 1e6)}${again}, waited ${seconds((data.wait[attempt] ?? 0) / 1e6)}`,
  };
};

const TimelineTab = ({ job, isLive }: { job: string; isLive: boolean }): JSX.Element => {
  const canvas = useRef<HTMLCanvasElement>(null), line = useRef<Timeline | null>(null), data = useRef<Attempts | null>(null);
  const note = useSignal("The record of the run is read."), under = useSignal(""), kinds = useSignal<[number, string][]>([]);
  const dragged = useRef<number | null>(null), moved = useRef(0);
  const show = (read: Attempts, on: HTMLCanvasElement): void => {
    data.current = read;
    const used = new Set(read.kind);
    kinds.value = read.meta.kinds.map((it, at): [number, string] => [at, it]).filter((it) => used.has(it[0])).slice(0, 16);
    note.value = read.total ? `${count(read.total)} attempts on ${count(read.rows.length)} slots` : "No attempt has ended yet.";
    if (line.current) line.current.update(read);
    else line.current = new Timeline(on, read);
    // For tests of the page.
    (window as { starling?: unknown }).starling = {
      attempts: read.total,
      probe: (x: number, y: number) => line.current && describe(read, line.current, x, y), seen: () => line.current?.seen,
    };
  };
  useLooks(job, LIVE_MS, isLive, async (stop) => {
    try {
      const response = await ask(`${api(job)}/record`, stop);
      const read = await readRecord(new Uint8Array(await response.arrayBuffer()));
      if (!stop.aborted && canvas.current) show(read, canvas.current);
      return true;
    } catch (error) {
      if (!stop.aborted) note.value = error instanceof Problem ? `${error.message} ${error.hint}` : String(error);
      return false;
    }
  });
  useEffect(() => {
    const redraw = (): void => line.current?.redraw();
    const recolour = (): void => line.current?.readColours();
    const dark = matchMedia("(prefers-color-scheme: dark)");
    addEventListener("resize", redraw);
    addEventListener("starling-theme", recolour);
    dark.addEventListener("change", recolour);
    return () => {
      removeEventListener("resize", redraw);
      removeEventListener("starling-theme", recolour);
      dark.removeEventListener("change", recolour);
    };
  }, []);
  const at = (event: PointerEvent | MouseEvent): [number, number] => {
    const box = canvas.current?.getBoundingClientRect();
    return box ? [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height] : [0, 0];
  };
  const point = async (x: number, y: number): Promise<string> => {
    if (!data.current?.total || !line.current) return "";
    const found = await describe(data.current, line.current, x, y);
    under.value = found.text;
    return found.id;
  };
  const keys: Record<string, () => void> = {
    "+": () => line.current?.zoom(0.5), "=": () => line.current?.zoom(0.5), "-": () => line.current?.zoom(2),
    ArrowLeft: () => line.current?.shift(-0.2), ArrowRight: () => line.current?.shift(0.2), "0": () => line.current?.showAll(),
  };
  return (
    <>
      <p role="status">{note.value}</p>
      <p class="buttons">
        <button type="button" onClick={() => line.current?.zoom(0.5)}>Zoom in</button>
        <button type="button" onClick={() => line.current?.zoom(2)}>Zoom out</button>
        <button type="button" onClick={() => line.current?.shift(-0.5)}>Earlier</button>
        <button type="button" onClick={() => line.current?.shift(0.5)}>Later</button>
        <button type="button" onClick={() => line.current?.showAll()}>All</button>
      </p>
      <canvas ref={canvas} id="timeline" tabIndex={0} role="img"
        aria-label="Attempts by slot and time. Plus and minus zoom, arrows move. The other parts of the job have the figures as tables."
        onKeyDown={(event) => {
          const act = keys[event.key];
          if (act && !event.ctrlKey && !event.metaKey) {
            event.preventDefault();
            event.stopPropagation();
            act();
          }
        }}
        onWheel={(event) => {
          event.preventDefault();
          line.current?.zoom(event.deltaY > 0 ? 1.25 : 0.8, at(event)[0]);
        }}
        onDblClick={() => line.current?.showAll()}
        onPointerDown={(event) => {
          dragged.current = at(event)[0];
          moved.current = 0;
          event.currentTarget.setPointerCapture(event.pointerId);
        }}
        onPointerUp={async (event) => {
          const isClick = moved.current < 0.005;
          dragged.current = null;
          const id = await point(...at(event));
          if (isClick && id && event.ctrlKey) location.hash = address(job, `tasks/${id}`).slice(1);
        }}
        onPointerMove={(event) => {
          const [x, y] = at(event);
          if (dragged.current === null) {
            void point(x, y);
            return;
          }
          moved.current += Math.abs(x - dragged.current);
          line.current?.shift(dragged.current - x);
          dragged.current = x;
        }} />
      <p class="under" role="status">{under.value || "Point at an attempt; Ctrl and a click open its task."}</p>
      <p class="legend">
        {kinds.value.map(([number, kind]) => <span class="entry"><span class={`key k${number % 8}`} aria-hidden="true" /> {plain(kind)}</span>)}
        <span class="entry"><span class="key kbad" aria-hidden="true" /> did not succeed</span>
      </p>
      {isLive && <p class="note">Attempts that run are not shown before they end.</p>}
    </>
  );
};

const OutputPart = ({ job, task, stream, isLive }: { job: string; task: string; stream: string; isLive: boolean }): JSX.Element => {
  const { value, problem, isLast } = useAnswer<Output>(`${api(job)}/tasks/${task}/output?stream=${stream}`, LIVE_MS, isLive);
  const title = stream === "stderr" ? "Standard error" : "Standard output";
  return (
    <section aria-label={title}>
      <h2>{title}</h2>
      {problem && <Failed problem={problem} />}
      {value && value.bytes === 0 && value.written === 0 && <Empty>{isLive || !isLast ? "Nothing yet: nodes store output in pieces." : "It wrote nothing."}</Empty>}
      {value && value.bytes === 0 && value.written > 0 && <Warning>its {bytes(value.written)} are not here{value.is_away ? ": a node does not answer" : " any more"}</Warning>}
      {value?.damaged && <Warning>a part of it cannot be read</Warning>}
      {value && value.bytes > 0 && (
        <>
          <p class="note">{bytes(value.bytes)} on n{value.node}{value.bytes > 65536 ? ", the end of it" : ""}</p>
          <pre tabIndex={0} aria-label={title}>{plain(value.text)}</pre>
        </>
      )}
    </section>
  );
};

export const TaskView = ({ job, task }: { job: string; task: string }): JSX.Element => {
  const isRecord = overview.value?.source === "records";
  const line = overview.value?.jobs.find((it) => it.job === job);
  const isJobLive = !isRecord && (!line || !isEnded(line.state));
  const { value, problem } = useAnswer<TaskPage>(`${api(job)}/tasks/${task}`, LIVE_MS, isJobLive);
  const found = value?.task;
  const isLive = isJobLive && !["done", "failed", "cancelled", "skipped"].includes(found?.state ?? "");
  return (
    <>
      <p><a href={address(job)}>Job {plain(job)} {plain(line?.name ?? "")}</a> › <a href={address(job, "tasks")}>tasks</a></p>
      <h1>Task {found?.name ? plain(found.name) : plain(task)} {found && <State word={found.state} />}</h1>
      {problem && <Failed problem={problem} />}
      {!value && !problem && <Empty>Its home is asked.</Empty>}
      {found && (
        <>
          {(value?.missing_nodes ?? []).map((node) => <Warning>without the events of n{node}</Warning>)}
          <Figures items={[
            ["id", found.id], found.attempts === undefined ? ["attempt", found.attempt ?? "-"] : ["attempts", count(found.attempts)], ["node", found.node === undefined || found.node === null ? "-" : <a href={`#/nodes/${found.node}`}>n{found.node}</a>],
            ["exit code", String(found.exit_code ?? "-")],
            ["started", found.start_s !== undefined ? `after ${seconds(found.start_s)}` : found.started_s ? moment(found.started_s) : "-"],
            ["length", found.ran_s !== undefined ? seconds(found.ran_s)
              : found.started_s && found.ended_s ? seconds(found.ended_s - found.started_s) : "-"],
            ...(isRecord ? [] : [["outputs", (value?.output_sizes ?? []).map(bytes).join(", ") || "-"] as [string, string]]),
          ]} />
          {value?.command && <><h2>Command</h2><pre tabIndex={0} aria-label="Command">{plain(value.command.join(" "))}</pre></>}
          <h2>Explanation</h2>
          {value?.lines.length ? <ul class="lines">{value.lines.map((it) => <li>{plain(it)}</li>)}</ul>
            : <Empty>{isRecord ? "A run record has attempts only; the running cluster explains." : "Nothing is known of it yet."}</Empty>}
          {!isRecord && <><OutputPart job={job} task={task} stream="stdout" isLive={isLive} /><OutputPart job={job} task={task} stream="stderr" isLive={isLive} /></>}
        </>
      )}
    </>
  );
};
