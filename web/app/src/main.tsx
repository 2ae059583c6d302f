// The frame of the page: header, links, keys, and the choice of the page by the address.

import { render, type JSX } from "preact";
import { effect, signal, useSignal } from "@preact/signals";
import { EventsPage, JobsPage, NodePage, NodesPage, OverviewPage, StallsPage, StorePage } from "./cluster";
import { ChangeArea, forgetChange, isAsking } from "./actions";
import { count, plain } from "./format";
import { JobPage, TaskView } from "./job";
import { Age, Empty, Failed } from "./parts";
import { go, isPaused, look, needsToken, overview, poll, problem, route, setToken, sum, token, upNodes } from "./state";
import type { Overview } from "./types";

const PAGES: [string, string, string][] = [
  ["/", "Overview", "o"], ["/jobs", "Jobs", "j"], ["/nodes", "Nodes", "n"], ["/stalls", "Stalls", "s"],
  ["/store", "Store", "t"], ["/events", "Events", "e"],
];
const THEMES = ["auto", "light", "dark"];
const THEME_KEY = "starling.theme";

const theme = signal(THEMES.includes(localStorage.getItem(THEME_KEY) ?? "") ? localStorage.getItem(THEME_KEY)! : "auto");
const isHelpOpen = signal(false);

effect(() => {
  document.documentElement.dataset["theme"] = theme.value;
  localStorage.setItem(THEME_KEY, theme.value);
  dispatchEvent(new Event("starling-theme"));
});

const readRoute = (): void => {
  // An address that was pasted into this tab.
  if (location.hash.startsWith("#t=")) {
    setToken(location.hash);
    history.replaceState(null, "", `${location.pathname}${location.search}#/`);
    void look();
  }
  route.value = location.hash.replace(/^#/, "") || "/";
};
addEventListener("hashchange", () => {
  readRoute();
  forgetChange();
  document.getElementById("main")?.focus();
});

const Page = ({ seen, path }: { seen: Overview; path: string }): JSX.Element => {
  const parts = (path.split("?")[0] ?? "").split("/").filter(Boolean).map(decodeURIComponent);
  const [page = "", second = "", third = "", fourth = ""] = parts;
  switch (page) {
    case "": return <OverviewPage seen={seen} />;
    case "jobs":
      if (!second) return <JobsPage seen={seen} />;
      if (third === "tasks" && fourth) return <TaskView key={path} job={second} task={fourth} />;
      return <JobPage key={`${second}/${third}/${path.split("?")[1] ?? ""}`} job={second} tab={third} />;
    case "nodes": return second ? <NodePage seen={seen} id={Number(second.replace(/^n/, ""))} /> : <NodesPage seen={seen} />;
    case "stalls": return <StallsPage seen={seen} />;
    case "store": return <StorePage />;
    case "events": return <EventsPage seen={seen} />;
    default: return <Empty>There is no such page. <a href="#/">Overview</a></Empty>;
  }
};

const Status = ({ seen }: { seen: Overview | null }): JSX.Element => {
  if (problem.value) {
    return <span class="bad" role="alert"><span aria-hidden="true">⚠ </span>no answer<Age /></span>;
  }
  if (!seen) return <span>connecting</span>;
  if (seen.source === "records") return <span>run records</span>;
  return <span>{isPaused.value ? "❚❚ paused" : "● live"}</span>;
};

const Header = ({ seen }: { seen: Overview | null }): JSX.Element => {
  const up = seen ? upNodes(seen) : [];
  const down = (seen?.nodes ?? []).filter((node) => node.state === "down").length;
  const stalled = (seen?.jobs ?? []).filter((job) => job.stall).length;
  return (
    <header>
      <a class="name" href="#/">Starling</a>
      <span class="instance" title={seen?.instance}>{plain(seen?.instance ?? "")}</span>
      {seen?.source === "cluster" && (
        <>
          <span class="fact">{up.length}/{seen.nodes.length} nodes</span>
          <span class="fact">{count(sum(up, (node) => node.running))}/{count(sum(up, (node) => node.slots))} slots busy</span>
          {down > 0 && <a class="bad" href="#/nodes">✗ {down} down</a>}
          {stalled > 0 && <a class="bad" href="#/stalls">⚠ {stalled} stalled</a>}
        </>
      )}
      <span class="space" />
      <Status seen={seen} />
      <button type="button" aria-pressed={isPaused.value} onClick={() => { isPaused.value = !isPaused.value; }}>{isPaused.value ? "Go on" : "Pause"}</button>
      <label class="theme"><span class="hidden">Colours</span>
        <select aria-label="Colours" value={theme.value} onChange={(event) => { theme.value = event.currentTarget.value; }}>
          {THEMES.map((it) => <option value={it}>{it}</option>)}
        </select>
      </label>
      <button type="button" aria-label="Keys" onClick={() => { isHelpOpen.value = true; }}>?</button>
    </header>
  );
};

const Login = (): JSX.Element => {
  const text = useSignal("");
  return (
    <form class="panel login" onSubmit={(event) => {
      event.preventDefault();
      setToken(text.value);
      problem.value = null;
      void look();
    }}>
      <h1>The token is {token.value ? "wrong" : "missing"}</h1>
      <p>Open the whole address that <code>starling web</code> printed, or paste it here. Each start has another token.</p>
      <label>Address or token <input type="password" autocomplete="off" value={text.value} onInput={(event) => { text.value = event.currentTarget.value; }} /></label>
      <button type="submit">Open</button>
    </form>
  );
};

const Help = (): JSX.Element => (
  <dialog open class="panel" aria-label="Keys">
    <h2>Keys</h2>
    <dl class="keys">
      {PAGES.map(([, word, key]) => <div><dt><kbd>g</kbd> <kbd>{key}</kbd></dt><dd>{word}</dd></div>)}
      <div><dt><kbd>/</kbd></dt><dd>search</dd></div>
      <div><dt><kbd>p</kbd></dt><dd>pause, go on</dd></div>
      <div><dt><kbd>?</kbd></dt><dd>these keys</dd></div>
      <div><dt><kbd>+</kbd> <kbd>-</kbd> <kbd>←</kbd> <kbd>→</kbd> <kbd>0</kbd></dt><dd>on the timeline: zoom, move, all</dd></div>
    </dl>
    <button type="button" autofocus onClick={() => { isHelpOpen.value = false; }}>Close</button>
  </dialog>
);

const App = (): JSX.Element => {
  const seen = overview.value, path = route.value;
  const isCurrent = (of: string): boolean => (of === "/" ? path === "/" : path.startsWith(of));
  const pages = seen?.source === "records" ? PAGES.slice(1, 2) : PAGES;
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => {
        event.preventDefault();
        document.getElementById("main")?.focus();
      }}>To the content</a>
      <Header seen={seen} />
      <nav class="rail" aria-label="Pages">
        {pages.map(([to, word]) => (
          <a href={`#${to}`} aria-current={isCurrent(to) || pages.length === 1 ? "page" : undefined}>{pages.length === 1 ? "Runs" : word}</a>
        ))}
      </nav>
      <main id="main" tabIndex={-1}>
        {needsToken.value ? <Login /> : (
          <>
            {problem.value && <Failed problem={problem.value} />}
            <ChangeArea />
            {seen ? <Page seen={seen} path={path} /> : !problem.value && <Empty>The nodes are asked.</Empty>}
          </>
        )}
      </main>
      {isHelpOpen.value && <Help />}
    </>
  );
};

let isGoing = false;
addEventListener("keydown", (event) => {
  const target = event.target as HTMLElement;
  if (isAsking()) return;
  if (event.key === "Escape") isHelpOpen.value = false;
  if (event.ctrlKey || event.metaKey || event.altKey || ["INPUT", "SELECT", "TEXTAREA"].includes(target.tagName)) return;
  if (isGoing) {
    isGoing = false;
    const page = PAGES.find((it) => it[2] === event.key);
    if (page) go(page[0]);
    return;
  }
  if (event.key === "g") isGoing = true;
  if (event.key === "?") isHelpOpen.value = !isHelpOpen.value;
  if (event.key === "p") isPaused.value = !isPaused.value;
  if (event.key === "/") {
    event.preventDefault();
    const search = document.getElementById("search");
    if (search) search.focus();
    else {
      go("/jobs");
      setTimeout(() => document.getElementById("search")?.focus(), 50);
    }
  }
});

effect(() => {
  const parts = route.value.split("?")[0]?.split("/").filter(Boolean) ?? [];
  document.title = `${parts.join(" ") || "overview"} · Starling`;
});

readRoute();
const root = document.getElementById("app");
root?.replaceChildren();
if (root) render(<App />, root);
void poll();
