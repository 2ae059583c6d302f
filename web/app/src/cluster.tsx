// The pages about the cluster: overview, jobs, nodes, stalls, store, events.

import type { JSX } from "preact";
import { useSignal } from "@preact/signals";
import { Offers } from "./actions";
import { nodeOffers } from "./changes";
import { Recent } from "./chart";
import { bytes, clock, count, moment, number, percent, plain, seconds } from "./format";
import { Bar, type Column, Empty, Failed, Figures, State, Table, Warning, now, useAnswer } from "./parts";
import { jobWord, samples, sum, upNodes } from "./state";
import type { Change, Figures as NodeFigures, Job, Node, Overview, Store } from "./types";

const jobLink = (job: Job): JSX.Element => (
  <a href={`#/jobs/${encodeURIComponent(job.job)}`}>{plain(job.job)}{job.name && ` ${plain(job.name)}`}</a>
);

const parts = (job: Job): [string, number][] => [
  ["done", job.done], ["failed", job.failed], ["cancelled", job.cancelled], ["skipped", job.skipped],
  ["open", Math.max(0, job.total - job.done - job.failed - job.cancelled - job.skipped)],
];

const took = (job: Job): number => (job.ended_s ?? now.value / 1000) - job.submitted_s;

const jobColumns: Column<Job>[] = [
  { name: "job", cell: jobLink, key: (job) => Number(job.job) || job.job },
  { name: "state", cell: (job) => <State word={jobWord(job)} more={job.stall ? ", no progress" : ""} />, key: jobWord },
  { name: "progress", cell: (job) => <Bar parts={parts(job)} total={job.total} /> },
  { name: "tasks", cell: (job) => count(job.total), key: (job) => job.total, isNumber: true },
  { name: "done", cell: (job) => count(job.done), key: (job) => job.done, isNumber: true },
  { name: "failed", cell: (job) => count(job.failed), key: (job) => job.failed, isNumber: true },
  { name: "skipped", cell: (job) => count(job.skipped), key: (job) => job.skipped, isNumber: true },
  { name: "time", cell: (job) => seconds(took(job)), key: took, isNumber: true },
  { name: "submitted", cell: (job) => moment(job.submitted_s), key: (job) => job.submitted_s },
];

const worst = (seen: Overview): Node[] => seen.nodes.filter((node) => node.state !== "up" || node.slow);

const Notes = ({ seen }: { seen: Overview }): JSX.Element => (
  <>
    {seen.jobs_missing && <Warning>{plain(seen.jobs_missing)}</Warning>}
    {worst(seen).filter((node) => node.state !== "removed").map((node) => (
      <Warning><a href={`#/nodes/${node.id}`}>n{node.id}</a> is {node.state}{node.slow ? ", slow" : ""}</Warning>
    ))}
    {(seen.waits_for?.length ?? 0) > 0 && (
      <Warning>partitions wait for {seen.waits_for?.map((node) => `n${node}`).join(", ")}: no other node has a copy</Warning>
    )}
    {seen.jobs.filter((job) => job.stall).map((job) => <Warning>job {jobLink(job)} makes no progress: <a href="#/stalls">stalls</a></Warning>)}
  </>
);

export const OverviewPage = ({ seen }: { seen: Overview }): JSX.Element => {
  const up = upNodes(seen);
  const active = seen.jobs.filter((job) => job.ended_s === undefined);
  if (seen.source === "records") return <JobsPage seen={seen} />;
  return (
    <>
      <h1>Overview</h1>
      <Notes seen={seen} />
      <Figures items={[
        ["nodes up", `${up.length} of ${seen.nodes.length}`],
        ["slots busy", `${count(sum(up, (node) => node.running))} of ${count(sum(up, (node) => node.slots))}`],
        ["tasks ready", count(sum(up, (node) => node.ready_local + node.ready_shared))],
        ["tasks waiting", count(sum(up, (node) => node.waiting))],
        ["jobs active", `${active.length} of ${seen.jobs.length}`],
        ["moved to the nodes up", bytes(sum(seen.figures, (node) => node.data.bytes_moved))],
        ["failures survived", String(seen.losses_survived ?? 0)],
      ]} />
      <section aria-labelledby="h-recent">
        <h2 id="h-recent">Since this page was opened</h2>
        <Recent samples={samples.value} />
      </section>
      <section aria-labelledby="h-jobs">
        <h2 id="h-jobs">Newest jobs</h2>
        {seen.jobs.length
          ? <Table label="Newest jobs" columns={jobColumns} rows={[...seen.jobs].reverse().slice(0, 8)} />
          : <Empty>No job yet. <code>starling submit</code> submits one.</Empty>}
      </section>
      <section aria-labelledby="h-events">
        <h2 id="h-events">Last changes</h2>
        <Changes changes={seen.changes.slice(-8)} />
      </section>
    </>
  );
};

export const JobsPage = ({ seen }: { seen: Overview }): JSX.Element => {
  const filter = useSignal("");
  const has = (job: Job): boolean => `${job.job} ${job.name} ${jobWord(job)}`.toLowerCase().includes(filter.value.toLowerCase());
  return (
    <>
      <h1>{seen.source === "records" ? "Runs" : "Jobs"}</h1>
      <Notes seen={seen} />
      <label class="filter">Filter <input type="search" id="search" value={filter.value}
        onInput={(event) => { filter.value = event.currentTarget.value; }} /></label>
      {seen.jobs.length
        ? <Table label="Jobs" columns={jobColumns} rows={seen.jobs.filter(has)} initial={{ by: seen.source === "records" ? 8 : 0, isDown: true }} />
        : <Empty>No job yet. <code>starling submit</code> submits one.</Empty>}
    </>
  );
};

const nodeLink = (node: Node): JSX.Element => <a href={`#/nodes/${node.id}`}>n{node.id}</a>;

const nodeMore = (node: Node): string => `${node.slow ? ", slow" : ""}${node.paused ? ", paused" : ""}`;

const nodeColumns: Column<Node>[] = [
  { name: "node", cell: nodeLink, key: (node) => node.id },
  { name: "state", cell: (node) => <State word={node.state} more={`${nodeMore(node)}${node.keeper ? ", keeper" : ""}`} />, key: (node) => node.state },
  { name: "busy", cell: (node) => <Bar parts={[["running", Math.min(node.running, node.slots)], ["free", Math.max(0, node.slots - node.running)]]} total={node.slots} /> },
  { name: "slots", cell: (node) => count(node.slots), key: (node) => node.slots, isNumber: true },
  { name: "running", cell: (node) => count(node.running), key: (node) => node.running, isNumber: true },
  { name: "ready, local", cell: (node) => count(node.ready_local), key: (node) => node.ready_local, isNumber: true },
  { name: "ready, shared", cell: (node) => count(node.ready_shared), key: (node) => node.ready_shared, isNumber: true },
  { name: "waiting", cell: (node) => count(node.waiting), key: (node) => node.waiting, isNumber: true },
  { name: "homes", cell: (node) => count(node.homes), key: (node) => node.homes, isNumber: true },
  { name: "host", cell: (node) => plain(node.host), key: (node) => node.host },
];

const changeColumn: Column<Node> = { name: "change", cell: (node) => <Offers offers={nodeOffers(node)} /> };

const figureColumns: Column<NodeFigures>[] = [
  { name: "node", cell: nodeLink, key: (node) => node.id },
  { name: "policy", cell: (node) => plain(node.policy) },
  { name: "moved here", cell: (node) => bytes(node.data.bytes_moved), key: (node) => node.data.bytes_moved, isNumber: true },
  { name: "read locally", cell: (node) => bytes(node.data.bytes_read_local), key: (node) => node.data.bytes_read_local, isNumber: true },
  { name: "cache hits", cell: (node) => percent(node.data.cache_hit_rate), key: (node) => node.data.cache_hit_rate, isNumber: true },
  { name: "stored", cell: (node) => bytes(node.data.bytes_stored), key: (node) => node.data.bytes_stored, isNumber: true },
  { name: "tasks stolen", cell: (node) => count(node.steals_tasks), key: (node) => node.steals_tasks, isNumber: true },
  { name: "pushed", cell: (node) => count(node.pushes), key: (node) => node.pushes, isNumber: true },
  { name: "CPU", cell: (node) => seconds(node.cpu_s), key: (node) => node.cpu_s, isNumber: true },
  { name: "peak memory", cell: (node) => bytes(node.peak_rss_bytes), key: (node) => node.peak_rss_bytes, isNumber: true },
];

export const NodesPage = ({ seen }: { seen: Overview }): JSX.Element => (
  <>
    <h1>Nodes</h1>
    <Notes seen={seen} />
    <Table label="Nodes" columns={seen.allows_changes ? [...nodeColumns, changeColumn] : nodeColumns} rows={seen.nodes} />
    <h2>Since the start of each node</h2>
    <Table label="Figures of nodes" columns={figureColumns} rows={seen.figures} />
  </>
);

export const NodePage = ({ seen, id }: { seen: Overview; id: number }): JSX.Element => {
  const node = seen.nodes.find((it) => it.id === id), figures = seen.figures.find((it) => it.id === id);
  if (!node) return <Warning>There is no node n{id}. <a href="#/nodes">All nodes</a></Warning>;
  const measured = figures?.measured;
  return (
    <>
      <h1>Node n{id}</h1>
      <Offers offers={nodeOffers(node)} />
      {!figures && <Warning>It does not answer: there are no figures of it now.</Warning>}
      <Figures items={[
        ["state", <State word={node.state} more={nodeMore(node)} />], ["host", plain(node.host) || "-"],
        ["address", node.addr || "-"], ["process", String(node.pid)], ["incarnation", String(node.incarnation)],
        ["slots", count(node.slots)], ["running", count(node.running)], ["homes", count(node.homes)],
        ["votes", node.votes ? "yes" : "no"], ["outputs with too few copies", count(node.lacking_copies)],
      ]} />
      {figures && <Table label="Figures" columns={figureColumns.slice(1)} rows={[figures]} />}
      {measured && measured.kinds.length > 0 && (
        <>
          <h2>Measured lengths</h2>
          <Table label="Measured lengths" rows={measured.kinds} columns={[
            { name: "kind", cell: (it) => plain(it.kind), key: (it) => it.kind },
            { name: "tasks", cell: (it) => count(it.tasks), key: (it) => it.tasks, isNumber: true },
            { name: "mean", cell: (it) => seconds(it.mean_s), key: (it) => it.mean_s, isNumber: true },
            { name: "median", cell: (it) => seconds(it.median_s), key: (it) => it.median_s, isNumber: true },
            { name: "95 % at most", cell: (it) => seconds(it.q95_s), key: (it) => it.q95_s, isNumber: true },
          ]} />
        </>
      )}
      {figures && (
        <>
          <h2>Settings</h2>
          <Table label="Settings" rows={Object.entries(figures.tuning).filter((it) => it[1] !== null)} columns={[
            { name: "setting", cell: (it) => it[0] }, { name: "value", cell: (it) => plain(String(it[1])) },
          ]} />
          <p class="note"><code>starling node set</code> changes them; this page only shows.</p>
        </>
      )}
    </>
  );
};

export const StallsPage = ({ seen }: { seen: Overview }): JSX.Element => {
  const stalled = seen.jobs.filter((job) => job.stall);
  return (
    <>
      <h1>Stalls</h1>
      {seen.jobs_missing && <Warning>{plain(seen.jobs_missing)}</Warning>}
      {stalled.length === 0 && <Empty>Every job that is known makes progress, or has ended.</Empty>}
      {stalled.map((job) => job.stall && (
        <section class="panel" aria-label={`Job ${job.job}`}>
          <h2>{jobLink(job)}</h2>
          <p class="chain">
            <span>job {job.job}</span> → <span>home <a href={`#/nodes/${job.stall.home}`}>n{job.stall.home}</a></span>
            {" → "}<a href={`#/jobs/${job.job}/tasks/${job.stall.task}`}>task {job.stall.task} {plain(job.stall.name)}</a>
            {" → "}<span>holder <a href={`#/nodes/${job.stall.holder}`}>n{job.stall.holder}</a></span>
          </p>
          <Figures items={[
            ["reason", plain(job.stall.why)], ["no progress for", seconds(now.value / 1000 - job.stall.since_s)],
            ["last event", plain(job.stall.last_event) || "none"],
          ]} />
          <p class="note">The task's page explains more. <code>starling task explain {job.job} {job.stall.task}</code> prints it.</p>
        </section>
      ))}
    </>
  );
};

const STORE_WORDS: [string, string, string][] = [
  ["f", "full", "has all its replicas"], ["l", "less", "has fewer replicas than it should"],
  ["m", "moving", "is copied to another node"], ["w", "waits", "waits for its primary"], ["s", "lost", "is lost"],
];

export const StorePage = (): JSX.Element => {
  const { value: store, problem } = useAnswer<Store>("api/v1/store", 3000, true);
  if (!store) return <><h1>Store</h1>{problem ? <Failed problem={problem} /> : <Empty>Asking the nodes.</Empty>}</>;
  const nodes = [...new Set(store.homes)].filter((it) => it >= 0).sort((a, b) => a - b);
  const counted = STORE_WORDS.map(([letter, word, text]) => ({
    letter, word, text, number: [...store.states].filter((it) => it === letter).length,
  }));
  return (
    <>
      <h1>Store</h1>
      {problem && <Failed problem={problem} />}
      {!store.fully_replicated && store.copies > 1 && <Warning>some partitions, results or voters lack copies now</Warning>}
      <Figures items={[
        ["partitions", count(store.states.length)], ["replicas", `${store.copies}${store.wanted === store.copies ? "" : `, ${store.wanted} wanted`}`],
        ["failures survived", String(store.losses_survived)], ["voters", store.voters.map((it) => `n${it}`).join(", ") || "-"],
        ["map", `change ${count(store.map_epoch)}`],
      ]} />
      <h2>Partitions</h2>
      <Table label="Partitions by state" rows={counted} columns={[
        { name: "state", cell: (it) => <><span class={`key store-${it.letter}`} aria-hidden="true" /> {it.word}: {it.text}</> },
        { name: "partitions", cell: (it) => count(it.number), isNumber: true },
      ]} />
      <div class="grid" role="img" aria-label="One mark for each partition; the table above has the numbers">
        {[...store.states].slice(0, 4096).map((letter, at) => <span class={`store-${letter}`} title={`partition ${at}: ${STORE_WORDS.find((it) => it[0] === letter)?.[1]}, home n${store.homes[at]}`} />)}
      </div>
      <h2>Homes</h2>
      <Table label="Homes" rows={nodes.map((node) => ({ node, number: store.homes.filter((it) => it === node).length }))} columns={[
        { name: "node", cell: (it) => <a href={`#/nodes/${it.node}`}>n{it.node}</a>, key: (it) => it.node },
        { name: "partitions", cell: (it) => count(it.number), key: (it) => it.number, isNumber: true },
      ]} />
    </>
  );
};

const Changes = ({ changes }: { changes: Change[] }): JSX.Element => changes.length ? (
  <Table label="Changes" most={100} rows={[...changes].reverse()} columns={[
    { name: "time", cell: (it) => clock(it.time_s) },
    { name: "subject", cell: (it) => it.node !== undefined ? <a href={`#/nodes/${it.node}`}>n{it.node}</a>
      : it.job !== undefined ? <a href={`#/jobs/${it.job}`}>job {it.job}</a> : "" },
    { name: "change", cell: (it) => it.bad ? <span class="bad"><span aria-hidden="true">⚠ </span>{plain(it.text)}</span> : plain(it.text) },
  ]} />
) : <Empty>No change was seen yet.</Empty>;

export const EventsPage = ({ seen }: { seen: Overview }): JSX.Element => (
  <>
    <h1>Events</h1>
    <p class="note">
      Changes of nodes and jobs that this server has seen while a page was open, since {moment(seen.since_s ?? 0)}.
      Nodes are not asked while no page is open. {number(seen.changes.length, "change")}.
    </p>
    <Changes changes={seen.changes} />
  </>
);
