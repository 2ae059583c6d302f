// The token, the questions to the server, and all that the pages share.

import { computed, signal } from "@preact/signals";
import type { Job, Node, Overview } from "./types";

/** A question that was not answered. */
export class Problem extends Error {
  constructor(readonly status: number, message: string, readonly hint: string) {
    super(message);
  }
}

const KEY = "starling.token";
const POLL_MS = 1000;
const SAMPLES_MAX = 600;

/** The address has the token after '#t='. It moves to the storage of this tab. */
const takeToken = (): string => {
  const found = /^#t=([0-9A-Za-z]+)$/.exec(location.hash);
  if (found?.[1]) {
    sessionStorage.setItem(KEY, found[1]);
    history.replaceState(null, "", `${location.pathname}${location.search}#/`);
  }
  return sessionStorage.getItem(KEY) ?? "";
};

export const token = signal(takeToken());
export const setToken = (text: string): void => {
  const found = /(?:#t=)?([0-9A-Za-z]+)\s*$/.exec(text);
  token.value = found?.[1] ?? "";
  sessionStorage.setItem(KEY, token.value);
};

const send = async (path: string, signal: AbortSignal | undefined, more: RequestInit): Promise<Response> => {
  let response: Response;
  try {
    response = await fetch(path, {
      ...more, headers: { ...more.headers, Authorization: `Bearer ${token.value}` }, cache: "no-store", ...(signal ? { signal } : {}),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, "the server does not answer", "'starling web' serves this page: start it again");
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => ({})) as { error?: string; hint?: string };
  throw new Problem(response.status, body.error ?? `status ${response.status}`, body.hint ?? "");
};

/** Asks the server. The address is relative, so that any prefix of a proxy works. */
export const ask = (path: string, signal?: AbortSignal): Promise<Response> => send(path, signal, {});

/** Asks the server for a change of the object that is named once more. */
export const askChange = async (path: string, confirm: string): Promise<{ text: string }> => {
  const headers = { "Content-Type": "application/json" };
  const response = await send(path, undefined, { method: "POST", headers, body: JSON.stringify({ confirm }) });
  return response.json() as Promise<{ text: string }>;
};

export const askJson = async <T>(path: string, signal?: AbortSignal): Promise<T> =>
  (await ask(path, signal)).json() as Promise<T>;

export interface Sample { at: number; slots: number; running: number; ready: number; ended: number }

export const overview = signal<Overview | null>(null);
export const problem = signal<Problem | null>(null);
export const samples = signal<Sample[]>([]);
export const isPaused = signal(false);
export const route = signal("/");
export const answeredAt = signal(0);
export const needsToken = computed(() => token.value === "" || problem.value?.status === 401);

/** The state of a job in a word, as `job list` has it. */
export const jobWord = (job: Job): string => (job.waiting ? "waiting" : job.state);

export const upNodes = (seen: Overview): Node[] => seen.nodes.filter((node) => node.state === "up");

export const sum = <Row>(rows: Row[], of: (row: Row) => number): number => rows.reduce((all, row) => all + of(row), 0);

const sampleOf = (seen: Overview): Sample => {
  const up = upNodes(seen);
  return {
    at: seen.now_s,
    slots: sum(up, (node) => node.slots),
    running: sum(up, (node) => node.running),
    ready: sum(up, (node) => node.ready_local + node.ready_shared),
    ended: sum(seen.jobs, (job) => job.done + job.failed + job.cancelled + job.skipped),
  };
};

export const look = async (): Promise<void> => {
  try {
    const seen = await askJson<Overview>("api/v1/overview");
    problem.value = null;
    answeredAt.value = Date.now();
    overview.value = seen;
    if (seen.source === "cluster") {
      samples.value = [...samples.value, sampleOf(seen)].slice(-SAMPLES_MAX);
    }
  } catch (error) {
    if (error instanceof Problem) problem.value = error;
  }
};

/** Looks again and again, while the page is seen and not paused. Large clusters are asked less often. */
export const poll = async (): Promise<void> => {
  for (;;) {
    const isSeen = document.visibilityState === "visible" && !isPaused.value;
    if (isSeen && !(needsToken.value && token.value === "")) await look();
    const nodes = overview.value?.nodes.length ?? 0;
    const isRecord = overview.value?.source === "records";
    const pause = needsToken.value ? 3000 : isRecord ? 10_000 : Math.max(POLL_MS, nodes * 10);
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
};

export const go = (path: string): void => {
  location.hash = `#${path}`;
};
