// The answers of the server. They have the fields of the command line's --json.

export interface Stall { task: string; name: string; why: string; home: number; holder: number; last_event: string; since_s: number }

export interface Job {
  job: string; name: string; state: string; total: number; done: number; failed: number; cancelled: number;
  skipped: number; submitted_s: number; ended_s?: number; stall?: Stall; round?: number;
  /** None of its tasks has started; present only then. */
  waiting?: boolean; waits_for?: string[];
}

export interface Node {
  id: number; incarnation: number; addr: string; host: string; pid: number; state: string; given_up: boolean;
  slow: boolean; keeper: boolean; votes: boolean; homes: number; lacking_copies: number; slots: number;
  ready_local: number; ready_shared: number; running: number; waiting: number; paused?: boolean;
}

export interface Figures extends Node {
  policy: string; steals_tried: number; steals_won: number; steals_tasks: number; pushes: number; messages: number;
  cpu_s: number; peak_rss_bytes: number; stalled_jobs: number;
  data: {
    bytes_stored: number; bytes_copied: number; copies: number; bytes_evicted: number; bytes_moved: number;
    bytes_read_local: number; locality_hit_rate: number; cache_hit_rate: number;
  };
  measured: {
    tasks_per_s: number | null; bandwidth_bytes_per_s: number | null;
    sources: { node: number; objects: number; bytes_per_s: number }[];
    kinds: { kind: string; tasks: number; mean_s: number; median_s: number; q95_s: number }[];
  };
  tuning: Record<string, string | number | null>;
}

export interface Change { time_s: number; node?: number; job?: string; text: string; bad: boolean }

export interface Overview {
  source: "cluster" | "records"; instance: string; now_s: number; since_s?: number; map_epoch?: number;
  jobs: Job[]; jobs_missing?: string; nodes: Node[]; figures: Figures[]; changes: Change[];
  fully_replicated?: boolean; losses_survived?: number; waits_for?: number[];
  /** The server makes changes that the page asks for. */
  allows_changes?: boolean;
}

export interface Percentiles { mean_s: number; p50_s: number; p95_s: number; p99_s: number; max_s: number }

export interface Used {
  tasks: number; cpu_s: number; cpu_share: number; memory_p50_bytes: number; memory_p95_bytes: number;
  memory_max_bytes: number;
}

export interface Kind {
  kind: string; attempts: number; done: number; failed: number; busy_s: number; share: number; ran: Percentiles;
  waited: Percentiles; bytes_moved: number; first_start_s: number; last_end_s: number;
  /** Absent where no command was measured. */
  used?: Used;
}

export interface Progress {
  kind: string; total: number; waiting: number; ready: number; running: number; done: number; failed: number;
  cancelled: number; skipped: number;
}

export interface Example { task: string; name: string; node: number; error: string; stderr?: string }

export interface Failure {
  kind: string; exit_code: number; text: string; tasks: number; nodes: number[]; more_nodes: boolean;
  examples: Example[];
}

export type Shares = Record<string, number>;

export interface Report {
  job: string; name: string; state: string; source: string; policy: string; eta?: unknown;
  tasks: { total: number; done: number; failed: number; cancelled: number; skipped: number };
  attempts: number; nodes: number; slots: number; origin_ns: number; makespan_s: number; utilization: number;
  busy_s: number; lost_s: number; bytes_moved: number; bytes_read_local: number; steals: number; pushes: number;
  causes: { seconds: Shares; slots: number; window_s: number; step_s: number; series: Shares[] };
  kinds: Kind[]; failures: Failure[]; more_failures: number;
  per_node: { node: number; slots: number; attempts: number; failed: number; busy_s: number; utilization: number;
    bytes_moved: number; bytes_read_local: number }[];
  links: { from: number; to: number; objects: number; bytes: number; took_us: number }[]; link_level: number;
  slowest: { kind: string; task: string; name: string; node: number; start_s: number; ran_s: number; end: string }[];
  missing: { node: number; why: string }[];
  progress: Progress[]; thinned?: string;
}

export interface TaskLine {
  id: string; name: string; kind: string; state: string; exit_code: number; attempts: number; node?: number;
  start_s?: number; ran_s?: number;
}

export interface TaskLines { matching: number; skip: number; tasks: TaskLine[] }

export interface TaskPage {
  task: { id: string; name: string; state: string; attempt?: string; node?: number | null; exit_code?: number | null;
    started_s?: number | null; ended_s?: number | null;
    /** Of a run record. */
    kind?: string; attempts?: number; start_s?: number; ran_s?: number };
  lines: string[]; command?: string[]; missing_nodes?: number[]; stdout_bytes?: number; stderr_bytes?: number;
  output_sizes?: number[]; missing_parents?: string[];
}

export interface Output { text: string; bytes: number; written: number; node: number | null; damaged: boolean; is_away: boolean }

export interface Store {
  map_epoch: number; copies: number; wanted: number; voters: number[]; fully_replicated: boolean;
  losses_survived: number; waits_for: number[]; homes: number[]; states: string;
}
