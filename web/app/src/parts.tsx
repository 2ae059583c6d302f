// Parts that several pages use. Text of users is only ever a text node.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { signal, useSignal } from "@preact/signals";
import { count, plain } from "./format";
import { Problem, answeredAt, askJson, isPaused } from "./state";

const GLYPHS: Record<string, string> = {
  running: "▶", finished: "✓", done: "✓", up: "✓", failed: "✗", lost: "✗", down: "✗", unreadable: "✗", cancelled: "⊘",
  skipped: "⤼", waiting: "…", ready: "◌", staged: "…", joining: "…", leaving: "…", removed: "⊘",
};
const BAD = new Set(["failed", "lost", "down", "unreadable"]);

/** A state as a word with a sign: colour is never the only difference. */
export const State = ({ word, more = "" }: { word: string; more?: string }): JSX.Element => (
  <span class={`state ${BAD.has(word) ? "bad" : word}`}>
    <span aria-hidden="true">{GLYPHS[word] ?? "·"}</span> {word}{more}
  </span>
);

export const Warning = ({ children }: { children: ComponentChildren }): JSX.Element => (
  <p class="warning"><span aria-hidden="true">⚠ </span>{children}</p>
);

export const Empty = ({ children }: { children: ComponentChildren }): JSX.Element => <p class="empty">{children}</p>;

export interface Column<Row> {
  name: string;
  cell: (row: Row) => ComponentChildren;
  /** Makes the column sortable. */
  key?: (row: Row) => number | string;
  isNumber?: boolean;
}

/** A table that sorts by a column, scrolls on a narrow screen, and shows part of many rows. */
export function Table<Row>(
  { label, columns, rows, most = 200, initial }:
  { label: string; columns: Column<Row>[]; rows: Row[]; most?: number; initial?: { by: number; isDown: boolean } },
): JSX.Element {
  const order = useSignal(initial ?? null);
  const isAll = useSignal(false);
  const by = order.value, key = by && columns[by.by]?.key;
  const sorted = key ? [...rows].sort((a, b) => {
    const [x, y] = [key(a), key(b)];
    return (x < y ? -1 : x > y ? 1 : 0) * (by.isDown ? -1 : 1);
  }) : rows;
  const shown = isAll.value ? sorted : sorted.slice(0, most);
  const sort = (at: number): void => {
    order.value = { by: at, isDown: by?.by === at ? !by.isDown : columns[at]?.isNumber === true };
  };
  return (
    <div class="wide" tabIndex={0} role="region" aria-label={`${label}, table`}>
      <table>
        <thead><tr>
          {columns.map((column, at) => (
            <th scope="col" class={column.isNumber ? "number" : ""}
              aria-sort={by?.by === at ? (by.isDown ? "descending" : "ascending") : undefined}>
              {column.key
                ? <button type="button" class="sort" onClick={() => sort(at)}>
                    {column.name}<span aria-hidden="true">{by?.by === at ? (by.isDown ? " ↓" : " ↑") : ""}</span>
                  </button>
                : column.name}
            </th>
          ))}
        </tr></thead>
        <tbody>
          {shown.map((row) => (
            <tr>{columns.map((column) => <td class={column.isNumber ? "number" : ""}>{column.cell(row)}</td>)}</tr>
          ))}
        </tbody>
      </table>
      {rows.length > shown.length && (
        <button type="button" onClick={() => { isAll.value = true; }}>{count(rows.length - shown.length)} more</button>
      )}
    </div>
  );
}

/** Numbers with their names. */
export const Figures = ({ items }: { items: [string, ComponentChildren][] }): JSX.Element => (
  <dl class="figures">
    {items.map(([name, value]) => <div><dt>{name}</dt><dd>{value}</dd></div>)}
  </dl>
);

/** A bar of parts, with a text for those that do not see it. */
export const Bar = ({ parts, total }: { parts: [string, number][]; total: number }): JSX.Element => {
  const shown = parts.filter((part) => part[1] > 0);
  const text = shown.map(([name, n]) => `${count(n)} ${name}`).join(", ") || "none";
  return (
    <span class="bar" role="img" aria-label={text} title={text}>
      {shown.map(([name, n]) => <span class={`part ${name}`} style={{ width: `${total > 0 ? (100 * n) / total : 0}%` }} />)}
    </span>
  );
};

export const Failed = ({ problem }: { problem: Problem }): JSX.Element => (
  <Warning>{plain(problem.message)}{problem.hint && <span class="hint"> ({plain(problem.hint)})</span>}</Warning>
);

export interface Answer<T> {
  value: T | undefined;
  problem: Problem | undefined;
  /** It was asked for after the last change. */
  isLast: boolean;
}

/**
 * Looks at once, again after `everyMs` while `isLive`, and once after that: the last look was before the end.
 * `look` returns whether it succeeded. `of`: what it looks at; another one begins again.
 */
export function useLooks(
  of: string, everyMs: number, isLive: boolean, look: (stop: AbortSignal, isLast: boolean) => Promise<boolean>,
): void {
  const live = useRef(isLive), owes = useRef(false);
  if (live.current && !isLive) owes.current = true;
  live.current = isLive;
  useEffect(() => {
    const stop = new AbortController();
    const run = async (): Promise<void> => {
      for (let isFirst = true; !stop.signal.aborted; isFirst = false) {
        const isSeen = document.visibilityState === "visible" && !isPaused.value;
        if (isFirst || (isSeen && (live.current || owes.current))) {
          const isOwed = owes.current;
          owes.current = false;
          const hasSucceeded = await look(stop.signal, !live.current);
          if (isOwed && !hasSucceeded) owes.current = true;
        }
        await new Promise((resolve) => setTimeout(resolve, everyMs));
      }
    };
    void run();
    return () => stop.abort();
  }, [of, everyMs]);
}

/** The newest answer of the server. Old answers stay until a new one comes. */
export function useAnswer<T>(path: string, everyMs: number, isLive: boolean): Answer<T> {
  const [answer, setAnswer] = useState<Answer<T> & { of: string }>({ of: path, value: undefined, problem: undefined, isLast: false });
  useLooks(path, everyMs, isLive, async (stop, isLast) => {
    try {
      const value = await askJson<T>(path, stop);
      setAnswer({ of: path, value, problem: undefined, isLast });
      return true;
    } catch (error) {
      if (stop.aborted) return false;
      const problem = error instanceof Problem ? error : new Problem(0, String(error), "");
      setAnswer((old) => ({ of: path, value: old.of === path ? old.value : undefined, problem, isLast: false }));
      return false;
    }
  });
  return answer.of === path ? answer : { value: undefined, problem: undefined, isLast: false };
}

/** The time, once a second. */
export const now = signal(Date.now());
setInterval(() => { now.value = Date.now(); }, 1000);

/** The age of the figures, if they are old. */
export const Age = (): JSX.Element | null => {
  const age = Math.round((now.value - answeredAt.value) / 1000);
  return answeredAt.value > 0 && age > 4 ? <> for {age} s</> : null;
};
